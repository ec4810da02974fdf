"""The pages of a list in a real browser: opened from a folder, without a network."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.support.browser import DESKTOP, PHONE, barriers, errors_of_html, open_page, show

PAGES = (
    "index.html",
    "editions/2026-06/energy.html",
    "editions/2026-11/science.html",
    "systems.html",
    "trends.html",
    "systems/*.html",
    "systems/node-*.html",
)
LOADED = "return performance.getEntriesByType('resource').length"
PAPER = {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
CONTROLS = "return [...document.querySelectorAll('input, select, nav')].filter(e => e.offsetHeight).length"
WHITE = ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
VISIBLE = "return [...document.querySelectorAll('table.results tr:not([hidden]) td.system')].length"


@pytest.fixture(scope="module")
def browser(built: Path) -> Iterator[Chrome]:
    with open_page(built / "index.html", DESKTOP) as driver:
        yield driver


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_fits_the_screen_and_runs_nothing_of_others(
    browser: Chrome, built: Path, size: tuple[int, int], dark: bool
) -> None:
    for page in (page for name in PAGES for page in sorted(built.glob(name))):
        show(browser, page, size, dark)
        assert browser.execute_script("return document.documentElement.scrollWidth") == size[0], page
        assert browser.execute_script(LOADED) == 0, page
        assert browser.execute_script("return window.hacked === undefined && document.images.length === 0"), page
        links = [link.get_attribute("href") for link in browser.find_elements("css selector", "a[href]")]
        files = [Path(str(link).removeprefix("file://").partition("#")[0]) for link in links]
        assert [file for file in files if not file.is_file()] == [], page
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_rule_of_axe_is_broken(browser: Chrome, built: Path, size: tuple[int, int], dark: bool) -> None:
    for page in (min(built.glob(name)) for name in PAGES):  # one of each kind
        show(browser, page, size, dark)
        assert barriers(browser) == [], page


def test_every_page_is_html(built: Path) -> None:
    assert errors_of_html(sorted(built.rglob("*.html"))) == []


def test_paper_has_the_whole_width_of_a_table_and_no_controls(browser: Chrome, built: Path) -> None:
    for page in (page for name in PAGES for page in sorted(built.glob(name))):
        show(browser, page, DESKTOP, dark=True)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PAPER)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= PAPER["width"], page
        assert browser.execute_script(CONTROLS) == 0, page
        assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") in WHITE, page
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_science_page_has_a_table_for_each_benchmark(browser: Chrome, built: Path) -> None:
    show(browser, built / "index.html", DESKTOP, dark=False)
    browser.find_element("link text", "by time to quality").click()
    headings = [element.text for element in browser.find_elements("css selector", "h2")]
    assert headings == ["cosmoflow on tensorflow, rehearsal size", "resnet-hep on tensorflow, rehearsal size"]
    assert "signed by ada@site.example" in browser.find_element("css selector", "td.system").text
    browser.find_element("link text", "node*").click()
    history = browser.find_element("css selector", "table").text
    assert "cosmoflow on tensorflow, rehearsal" in history
    assert "17.28 kJ" in history


def test_a_filter_hides_the_other_rows(browser: Chrome, built: Path) -> None:
    show(browser, built / "editions" / "2026-11" / "score.html", DESKTOP, dark=False)
    assert browser.execute_script(VISIBLE) == 5
    field = browser.find_element("css selector", "#filters input")
    field.send_keys("alpha eve@")
    assert browser.execute_script(VISIBLE) == 1
    assert "1 of 5 rows" in browser.find_element("id", "filters").text


def test_the_charts_of_a_report_are_drawn_from_the_scripts_of_the_site(browser: Chrome, built: Path) -> None:
    show(browser, next((built / "results").glob("*/index.html")), DESKTOP, dark=False)
    assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
    browser.find_element("link text", "The list").click()
    assert browser.find_element("tag name", "h1").text == "November 2026"
