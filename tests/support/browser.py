"""A real browser without a window: Debian's Chromium, driven by selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
