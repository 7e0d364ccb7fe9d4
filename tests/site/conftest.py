"""The built site behind a server of its own, and headless Chromium with every other host cut off."""

import functools
import http.server
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ROOT = Path(__file__).parents[2]
SITE = ROOT / "_build/html"
SCREENSHOTS = ROOT / "_build/screenshots"
PHONE, DESKTOP = (390, 844), (1280, 900)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="session")
def address():
    """The site's address on a port of this machine."""
    if not (SITE / "index.html").is_file():
        pytest.fail(f"no site in {SITE}: run `make site` first")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Chromium, which finds no host but 127.0.0.1."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.fail("Chromium and its driver are missing: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (
            "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-dev-shm-usage",
            "disable-background-networking", "disable-component-update", "disable-sync", "hide-scrollbars",
            f"user-data-dir={profile}", "host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        ):  # fmt: skip
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = Service(driver, env={**os.environ, "HOME": profile})
        chrome = webdriver.Chrome(options=options, service=service)
        yield chrome
        chrome.quit()


def window(browser, size):
    """Lay the page out as on a screen of this many CSS pixels, whatever the window's frame."""
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def pages():
    """The site's pages, as paths below its folder, but for Sphinx's own index and search."""
    found = sorted(p.relative_to(SITE).as_posix() for p in SITE.glob("book/**/*.html"))
    return found or ["no-site-built"]
