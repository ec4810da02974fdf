"""The documentation's site: built without warnings, whole, and read without a network."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.browser import DESKTOP, PHONE, barriers, open_page, show
from tests.support.documentation.commands import documents
from tests.support.documentation.site import Page, build_site
from tests.support.folders import ROOT

WAIT_S = 60
OUTSIDE = {
    "docs.ray.io",
    "github.com",
    "hpl-mxp.org",
    "pradyunsg.me",
    "www.benchcouncil.org",
    "www.sphinx-doc.org",
}
"""Hosts that pages link to: Ray's manual, other benchmarks, and the theme's own in the footer."""

NOT_PAGES = {"README.md"}
"""For the forge: in the site, the first page takes its place."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build_site(folder)
    assert (built.returncode, built.stderr) == (0, "")
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(site.rglob("*.html"))}


def test_every_document_is_a_page(site: Path) -> None:
    names = [str(document.relative_to(ROOT)) for document in documents()]
    missing = [name for name in names if not (site / name).with_suffix(".html").exists()]
    assert set(missing) == NOT_PAGES


def test_every_link_leads_to_a_page_and_an_anchor(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for page in pages.values():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.file.parent / unquote(parts.path)).resolve() if parts.path else page.file
            anchors = pages[target].anchors if target in pages else {""}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{page.file.relative_to(site)}: {link}")
    assert broken == []


def test_links_to_other_sites_are_few_and_well_formed(pages: dict[Path, Page]) -> None:
    links = {link for page in pages.values() for link in page.links if urlsplit(link).scheme}
    assert {urlsplit(link).scheme for link in links} == {"https"}
    assert {urlsplit(link).hostname for link in links} == OUTSIDE


def test_nothing_is_loaded_from_a_network(site: Path, pages: dict[Path, Page]) -> None:
    assert [link for page in pages.values() for link in page.loaded if urlsplit(link).scheme not in ("", "data")] == []
    styles = [*site.rglob("*.css")]
    assert styles
    outside = re.compile(r"(?:url\(|@import)[\"' ]*(?:https?:)?//[^)\"']+")
    assert [name for file in styles for name in outside.findall(file.read_text())] == []


def test_every_page_is_in_the_contents(site: Path, pages: dict[Path, Page]) -> None:
    first = pages[site / "docs" / "index.html"]
    named = {(first.file.parent / urlsplit(link).path).resolve() for link in first.links if urlsplit(link).path}
    written = {(site / document.relative_to(ROOT)).with_suffix(".html") for document in documents()}
    assert {file for file in written if file.exists()} <= named | {first.file}


def test_the_search_finds_pages_without_a_network(site: Path) -> None:
    with open_page(site / "index.html", DESKTOP) as browser:
        _wait(browser, lambda: browser.current_url.endswith("/docs/index.html"))
        _wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".sidebar-search"))
        field = browser.find_element(By.CSS_SELECTOR, ".sidebar-search")
        field.send_keys("morphism", Keys.ENTER)
        link = "#search-results a[href*='docs/search.html']"
        _wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, link))
        _wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#search-results .context"))
        found = browser.find_element(By.CSS_SELECTOR, "#search-results .context")
        assert "morphism" in found.text.lower(), "the words around what was found"
        assert_only_files(browser)
        browser.find_element(By.CSS_SELECTOR, link).click()
        _wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "article h1"))
        assert browser.find_element(By.CSS_SELECTOR, "article h1").text.startswith("Architecture search")
        assert_only_files(browser)


def test_pages_fit_a_phone(site: Path, pages: dict[Path, Page]) -> None:
    wide = []
    with open_page(site / "docs" / "index.html", PHONE) as browser:
        for file in (file for file in pages if file != site / "index.html"):
            show(browser, file, PHONE, dark=False)
            if browser.execute_script("return document.documentElement.scrollWidth") > PHONE[0]:
                wide.append(str(file.relative_to(site)))
            assert_only_files(browser)
    assert wide == []


KINDS = ("docs/index.html", "docs/results.html", "docs/tutorial.html", "search.html")
"""A page of lists, one of tables and code, one of steps, and the search."""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_rule_of_axe_is_broken(site: Path, dark: bool, size: tuple[int, int]) -> None:
    with open_page(site / KINDS[0], size, dark) as browser:
        for name in KINDS:
            show(browser, site / name, size, dark)
            assert barriers(browser) == [], name


def assert_only_files(browser: Chrome) -> None:
    """The page has asked for nothing but files, and complained of nothing."""
    script = "return performance.getEntries().map(entry => entry.name).filter(name => /^[a-z]+:\\/\\//.test(name))"
    assert [name for name in browser.execute_script(script) if not name.startswith("file://")] == []
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def _wait(browser: Chrome, condition: Callable[[], object]) -> None:
    WebDriverWait(browser, WAIT_S).until(lambda _: condition())
