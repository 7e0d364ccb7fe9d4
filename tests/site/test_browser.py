"""The site as a reader meets it: headless Chromium, no network, desktop and phone, light and dark."""

import base64
import re
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from conftest import DESKTOP, PHONE, SCREENSHOTS, SITE, pages, window
from gpudays.interactive import FIXED

PAGES = pages()
CODE = [page for page in PAGES if "/day" in page or "tracer" in page]
NEXT = re.compile(r'class="right-next"\s+href="([^"#]+)"')
EXTERNAL = """
return [...document.querySelectorAll('script[src], link[rel~=stylesheet], link[rel~=preload], img, iframe, source')]
  .map(e => e.src || e.href).filter(a => a && !a.startsWith(location.origin) && !a.startsWith('data:'))
"""
WIDER_THAN_THE_SCREEN = (Path(__file__).parent / "wider_than_the_screen.js").read_text()
LOW_CONTRAST = (Path(__file__).parent / "low_contrast.js").read_text()
AT_ONCE = """  // colours change without a transition, in which a picture would catch them halfway
const style = document.createElement('style');
style.textContent = '* { transition: none !important }';
document.head.append(style);
"""
IMAGES = "return [...document.querySelectorAll('article img')].map(i => [i.getAttribute('src'), i.alt, i.naturalWidth])"


def visit(browser, address, page, size=DESKTOP, theme="light"):
    window(browser, size)
    chosen = {"source": f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}')"}
    before_the_page = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", chosen)
    browser.get_log("browser")
    browser.get(f"{address}/{page}")
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", before_the_page)


def switch(browser, theme):
    """Press the page's own button, which goes round light, dark and the system's, until the page is so."""
    shown = "return document.documentElement.dataset.theme"
    browser.execute_script(AT_ONCE)
    for _ in range(3):
        if browser.execute_script(shown) != theme:
            browser.execute_script("document.querySelector('.theme-switch-button').click()")
    assert browser.execute_script(shown) == theme


def wait(browser, condition, seconds=20):
    return WebDriverWait(browser, seconds, poll_frequency=0.05).until(condition)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_page_as_it_is_opened_and_in_the_dark(browser, address, page, size, subtests):
    visit(browser, address, page, size)
    with subtests.test("it opens without errors and without a network"):
        assert browser.find_element(By.CSS_SELECTOR, "article h1").text.strip()
        assert browser.execute_script(EXTERNAL) == []
        assert [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    with subtests.test("every image is there and described in a sentence"):
        for source, alt, width in browser.execute_script(IMAGES):
            assert width > 0, f"{source} does not load"
            assert len(alt.split()) >= 5, f"{source}: its description is {alt!r}"
        for drawing in browser.find_elements(By.CSS_SELECTOR, "article svg[viewBox^='0 0 480']"):
            assert len(drawing.get_attribute("aria-label").split()) >= 5
    for theme in ("light", "dark"):
        switch(browser, theme)
        if (size, theme) != (PHONE, "dark"):  # whose colours are the desktop's, whose layout is that in the light
            screenshot(browser, page, size, theme)
        with subtests.test("text stands out from its ground", theme=theme):
            assert browser.execute_script(LOW_CONTRAST) == []
        with subtests.test("nothing is wider than the screen", theme=theme):
            assert browser.execute_script(WIDER_THAN_THE_SCREEN) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_opens_as_its_reader_likes_it(browser, address, theme):
    visit(browser, address, "book/intro.html", theme=theme)
    assert browser.execute_script("return document.documentElement.dataset.theme") == theme
    assert browser.execute_script(LOW_CONTRAST) == []


def test_the_sliders_leave_their_fixed_states_where_no_kernel_runs(browser, address):
    visit(browser, address, "book/day43-matmul-1.html")
    assert len(browser.find_elements(By.CSS_SELECTOR, "article svg[viewBox^='0 0 480']")) == len(FIXED)


def test_the_first_page_is_the_site(browser, address):
    browser.get(f"{address}/index.html")
    wait(browser, lambda b: b.current_url.endswith("/book/intro.html"))


def test_every_page_is_reached_from_the_sidebar(browser, address):
    visit(browser, address, "book/intro.html")
    links = browser.find_elements(By.CSS_SELECTOR, ".bd-sidebar-primary nav a, .bd-sidebar-primary a.reference")
    reached = {link.get_attribute("href").split("#")[0].removeprefix(f"{address}/") for link in links}
    assert set(PAGES) <= reached | {"book/intro.html"}


def test_next_leads_from_page_to_page(browser, address):
    onward = {page: NEXT.search((SITE / page).read_text("utf-8")) for page in PAGES}
    seen = ["book/intro.html"]
    while found := onward[seen[-1]]:
        seen.append((SITE / seen[-1]).parent.joinpath(found[1]).resolve().relative_to(SITE).as_posix())
    assert sorted(seen) == PAGES
    visit(browser, address, seen[-2])
    browser.find_element(By.CSS_SELECTOR, "a.right-next").click()
    wait(browser, lambda b: b.current_url.endswith(seen[-1]))


def test_search_finds_a_word_and_says_where(browser, address):
    visit(browser, address, "book/intro.html")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.CONTROL, "k")
    box = wait(browser, lambda b: next(f for f in b.find_elements(By.NAME, "q") if f.is_displayed()))
    box.send_keys("bank conflict", Keys.ENTER)
    # The results come in one by one, the pages that say it oftenest first.
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, '#search-results li a[href*="glossary"]'))


def test_search_for_nothing_says_so(browser, address):
    browser.get(f"{address}/search.html?q=zyxwvut")
    wait(browser, lambda b: "did not match" in b.find_element(By.ID, "search-results").text)


def test_the_keyboard_alone_reaches_the_text_and_the_links(browser, address):
    visit(browser, address, "book/intro.html")
    browser.switch_to.active_element.send_keys(Keys.TAB)
    first = browser.switch_to.active_element
    assert first.get_attribute("href").endswith("#main-content")
    first.send_keys(Keys.ENTER)
    assert browser.current_url.endswith("#main-content")
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.text == "In Colab":
            break
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait(browser, lambda b: b.current_url.endswith("/book/setup/colab.html"))


@pytest.mark.parametrize("page", CODE)
def test_code_is_copied_and_hints_are_folded(browser, address, page, subtests):
    visit(browser, address, page)
    with subtests.test("hints and solutions are folded, and open by keyboard"):
        for fold in browser.find_elements(By.CSS_SELECTOR, "article details"):
            assert fold.get_attribute("open") is None
            fold.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
            assert fold.get_attribute("open") is not None
    with subtests.test("the copy button copies the code"):
        browser.execute_cdp_cmd(
            "Browser.grantPermissions",
            {"origin": address, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
        )
        code = next(c for c in browser.find_elements(By.CSS_SELECTOR, ".cell_input .highlight") if c.is_displayed())
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", code)
        button = code.find_element(By.CSS_SELECTOR, "button.copybtn")  # seen only while the mouse is over the code
        ActionChains(browser).move_to_element(code).move_to_element(button).click().perform()
        wait(browser, lambda b: code.find_elements(By.CSS_SELECTOR, "button.copybtn.success"))
        copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
        assert copied.strip() == code.find_element(By.TAG_NAME, "pre").text.strip()


def screenshot(browser, page, size, theme):
    """Keep the page's first 12,000 pixels as a picture, for people and for CI's artefacts."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    width = browser.execute_script("return window.innerWidth")
    height = browser.execute_script("return Math.min(document.documentElement.scrollHeight, 12000)")
    window(browser, (width, height))  # a window as tall as the page: what is beyond a window is laid out otherwise
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
    window(browser, size)
    name = page.removeprefix("book/").removesuffix(".html").replace("/", "-")
    kind = "phone" if size == PHONE else "desktop"
    (SCREENSHOTS / f"{name}-{kind}-{theme}.png").write_bytes(base64.b64decode(taken["data"]))
