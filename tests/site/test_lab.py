"""The sliders where a kernel runs: a real JupyterLab, a cell run by keyboard, a slider moved, the picture following."""

import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.request

import nbformat
import pytest
from selenium.common.exceptions import ElementNotInteractableException, StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from conftest import SCREENSHOTS, window

CELL = "from gpudays import interactive\n\ninteractive.explore_warp()"


@pytest.fixture
def lab(tmp_path):
    """JupyterLab on a free port, with one notebook of one cell; its address."""
    cell = nbformat.v4.new_code_cell(CELL)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=kernel), tmp_path / "page.ipynb")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(8)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={token}", f"--notebook-dir={tmp_path}", "--ServerApp.port_retries=0"]
    with (tmp_path / "lab.log").open("w") as log:
        environment = {**os.environ, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            address = f"http://127.0.0.1:{port}"
            _until_it_answers(f"{address}/api?token={token}", server, tmp_path / "lab.log")
            yield f"{address}/lab/tree/page.ipynb?token={token}"
        finally:
            server.terminate()
            server.wait(30)


def _until_it_answers(address, server, log):
    for _ in range(300):
        try:
            urllib.request.urlopen(address, timeout=5)
            return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.4)
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text()[-2000:]}")


def drawn(browser):
    """The words of the picture that the sliders drew, "" while there is none."""
    try:
        found = browser.find_elements(By.CSS_SELECTOR, ".widget-vbox svg")
        return found[0].get_attribute("aria-label") if found else ""
    except StaleElementReferenceException:  # it is being redrawn
        return ""


def run_the_cell(browser):
    cell = browser.find_element(By.CSS_SELECTOR, ".jp-CodeCell .cm-content")
    cell.click()
    cell.send_keys(Keys.SHIFT, Keys.ENTER)
    try:
        return WebDriverWait(browser, 20).until(drawn)
    except TimeoutException:  # the keys came while JupyterLab was replacing the cell: once more
        return ""


def test_a_slider_redraws_the_warp(browser, lab):
    moving = (StaleElementReferenceException, ElementNotInteractableException)  # JupyterLab is still laying itself out
    wait = WebDriverWait(browser, 120, poll_frequency=0.3, ignored_exceptions=moving)
    window(browser, (1200, 900))
    browser.get(lab)
    wait.until(lambda b: b.find_elements(By.CSS_SELECTOR, ".jp-Notebook-ExecutionIndicator[data-status=idle]"))
    assert "N = 512" in wait.until(run_the_cell)
    assert "32 lanes, 4 sectors" in wait.until(drawn)
    width = browser.find_elements(By.CSS_SELECTOR, ".widget-slider .noUi-handle")[1]
    for _ in range(3):
        width.send_keys(Keys.ARROW_LEFT)
    wait.until(lambda b: "N = 509" in drawn(b))
    assert re.search(r"32 lanes, 5 sectors", drawn(browser))
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(SCREENSHOTS / "jupyterlab-slider.png"))
