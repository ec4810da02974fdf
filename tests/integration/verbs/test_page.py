"""The page of a report in a real browser: one session, over pages of hand-made runs."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome

from analysis.results.ranking import rank
from analysis.results.source import read_result
from analysis.verbs.ranking_page import ranking_page
from tests.support.browser import DESKTOP, PHONE, drawn, open_page, show
from tests.support.hand_made import HandMadeRun, aiperf
from tests.support.reports.pages import HOSTILE, page_of, resumed
from tests.support.runs import wait_for


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(resumed(tmp_path_factory.mktemp("page")))


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[Chrome]:
    with open_page(page, DESKTOP) as driver:
        yield driver


def script(browser: Chrome, text: str) -> Any:
    return browser.execute_script(text)


def opened(browser: Chrome, page: Path, size: tuple[int, int] = DESKTOP, dark: bool = False) -> Chrome:
    show(browser, page, size, dark)
    wait_for(lambda: drawn(browser))
    return browser


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_is_whole_on_every_screen(browser: Chrome, page: Path, size: tuple[int, int], dark: bool) -> None:
    opened(browser, page, size, dark)
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert script(browser, "return document.documentElement.scrollWidth") == size[0], "no sideways scrolling"
    assert script(browser, "return performance.getEntriesByType('resource').length") == 0, "no network"
    for place in ("status", "score", "sentence"):
        box = browser.find_element("id", place).rect
        assert box["y"] >= 0 and box["y"] + box["height"] <= size[1], f"{place} is seen without scrolling"
    figures = script(browser, FIGURES)
    assert {name for name, *_ in figures} >= {
        "score",
        "network",
        "lineage",
        "phases",
        "replicas",
        "accuracy",
        "trial",
        "roofline",
    }
    for name, role, label, painted, height in figures:
        assert (role, bool(label)) == ("img", True), name
        assert painted or name == "trial", f"{name} is blank"
        assert height <= 300
    assert script(browser, REPEATED_IDS) == []
    contrast = script(browser, CONTRAST)
    assert min(contrast.values()) >= 4.5, f"texts are readable: {contrast}"


def test_texts_of_records_are_shown_and_never_run(browser: Chrome, page: Path) -> None:
    opened(browser, page)
    assert browser.find_element("tag name", "h1").text == HOSTILE
    for row in browser.find_elements("css selector", "#trial-table tbody tr"):
        row.click()
    assert HOSTILE in browser.find_element("id", "opened").text
    assert script(browser, "return window.hacked === undefined && document.images.length === 0")


def test_a_row_leads_to_the_curve_and_the_architecture_of_its_trial(browser: Chrome, page: Path) -> None:
    opened(browser, page)
    table = browser.find_element("id", "trial-table")

    def first_column() -> list[str]:
        return [
            row.find_element("tag name", "td").text
            for row in table.find_elements("css selector", "tbody tr")
            if row.is_displayed()
        ]

    assert first_column() == ["1", "2", "3"]
    accuracy = table.find_element("xpath", ".//th[2]")
    accuracy.click()
    assert (first_column(), accuracy.get_attribute("aria-sort")) == (["2", "1", "3"], "descending")
    accuracy.click()
    assert first_column() == ["3", "1", "2"]
    browser.find_element("id", "filter").send_keys("stopped")
    assert first_column() == ["3"]
    browser.find_element("id", "filter").clear()
    script(browser, "document.getElementById('filter').dispatchEvent(new Event('input'))")
    table.find_element("css selector", "tr[data-trial='1'] button").click()
    opened_text = browser.find_element("id", "opened").text
    assert "Trial 2" in opened_text
    assert "a skip connection from s2b1_relu to s3b2_arelu" in opened_text
    assert "logs/trial-000002.log" in opened_text
    curve = script(browser, "return Bokeh.documents.map(d => d.get_model_by_name('curve')).find(Boolean).data.accuracy")
    assert curve == [pytest.approx(150 / 360, abs=1e-5), pytest.approx(300 / 360, abs=1e-5)]


def test_values_appear_under_the_pointer(browser: Chrome, page: Path) -> None:
    opened(browser, page)
    plot = browser.find_element("id", "plot-score")
    script(browser, "document.getElementById('plot-score').scrollIntoView({block: 'center'})")
    ActionChains(browser).move_to_element(plot).perform()
    wait_for(lambda: "OPS" in str(script(browser, TOOLTIP)) and "error" in str(script(browser, TOOLTIP)))
    ratios = script(browser, LABELS)
    assert ratios
    assert min(ratios) >= 4.5, "labels can be read"


def test_pages_of_runs_without_work_are_whole(browser: Chrome, tmp_path: Path) -> None:
    empty = page_of(HandMadeRun(tmp_path / "empty").at(0).release(100).end(100))
    never = page_of(HandMadeRun(tmp_path / "never"))
    opened(browser, empty, PHONE)
    assert "worked for 1m40s, but the run has no score; no epoch was completed." in browser.page_source
    show(browser, never, PHONE, False)
    assert browser.find_element("id", "sentence").text == "1 replica never started."
    assert browser.find_element("id", "time").text == "No time was recorded."
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert script(browser, "return document.documentElement.scrollWidth") == PHONE[0]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_ranking_has_bars_and_leads_to_no_page_of_a_submission(
    browser: Chrome, page: Path, tmp_path: Path, size: tuple[int, int]
) -> None:
    result = read_result(page.parent.parent)
    report = result.report.model_copy(update={"name": HOSTILE, "score_ops": 1e12, "verdict": "unofficial"})
    half = replace(
        result,
        origin=Path("half"),
        identity=None,
        head=None,
        evidence=b"",
        report=report.model_copy(update={"score_ops": 5e11}),
    )
    full = replace(result, report=report.model_copy(update={"configuration": {}}))
    file = tmp_path / "pages" / "ranking.html"
    file.parent.mkdir()
    file.write_text(ranking_page(rank([half, full], "score")))
    show(browser, file, size, dark=True)
    assert script(browser, "return document.documentElement.scrollWidth") == size[0], "no sideways scrolling"
    assert script(browser, "return [...document.querySelectorAll('.wide')].every(e => e.scrollWidth <= e.clientWidth)")
    widths = [element.size["width"] for element in browser.find_elements("css selector", ".meter i")]
    assert widths[1] == pytest.approx(widths[0] / 2, abs=1)
    assert script(browser, "return window.hacked === undefined")
    assert script(browser, "return document.links.length") == 0, "a report's page is its submitter's"


def test_no_word_is_too_long_for_a_phone(browser: Chrome, tmp_path: Path) -> None:
    word = "W" * 90
    made = HandMadeRun(tmp_path / word, {"run.name": word}).at(0).release(100).at(1).start_trial(1)
    made.at(50).epoch(1, 1).lose(0, word).end(100)
    manifest = json.loads(made.paths.run.read_text())
    made.paths.run.write_text(json.dumps({**manifest, "git_revision": word}))
    with (made.paths.history / f"{made.primary.name}.jsonl").open("a") as file:
        file.write("damaged\n")
    long, ranking = page_of(made), tmp_path / "ranking.html"
    assert aiperf("rank", long.with_suffix(".json"), "--html", ranking).returncode == 0
    for file_shown, shown in ((long, 5), (ranking, 1)):
        assert file_shown.read_text().count(word) >= shown
        show(browser, file_shown, PHONE, False)
        width = script(browser, "return document.documentElement.scrollWidth")
        assert width == PHONE[0], f"{file_shown.name} scrolls sideways"


FIGURES = """
const painted = root => [...root.querySelectorAll('*')].some(e => e.shadowRoot ? painted(e.shadowRoot)
  : e.tagName === 'CANVAS' && e.width > 0 && e.height > 0
    && e.getContext('2d').getImageData(0, 0, e.width, e.height).data.some(v => v > 0));
return [...document.querySelectorAll('.plot')].map(e => [e.id.replace('plot-', ''), e.getAttribute('role'),
  e.getAttribute('aria-label'), painted(e), e.getBoundingClientRect().height]);
"""

REPEATED_IDS = """
const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
return ids.filter((id, place) => ids.indexOf(id) !== place);
"""

TOOLTIP = """
const text = root => [...root.querySelectorAll('*')].map(e => (e.shadowRoot ? text(e.shadowRoot) : '')
  + (e.className && String(e.className).includes('bk-tooltip-row') ? e.textContent : '')).join(' ');
return text(document);
"""

LIGHT = """
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => { v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
"""
"""The relative luminance of WCAG 2."""

LABELS = f"""{LIGHT}
const labels = root => [...root.querySelectorAll('*')].flatMap(e => [...(e.shadowRoot ? labels(e.shadowRoot) : []),
  ...(String(e.className).includes('bk-tooltip-row-label') ? [e] : [])]);
return labels(document).map(e => {{
  const pair = [getComputedStyle(e).color, getComputedStyle(e.getRootNode().host).backgroundColor].map(light);
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}});
"""

CONTRAST = (
    f"{LIGHT}"
    """
const paper = light(getComputedStyle(document.body).backgroundColor);
const found = {};
for (const s of ['body', '.soft', '#status', 'td.passed', 'td.failed', 'figcaption', 'dt']) {
  const ink = light(getComputedStyle(document.querySelector(s)).color);
  found[s] = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}
const plot = Bokeh.documents[0].roots()[0];
const ink = light(getComputedStyle(document.body).color);
found.ink = plot.below[0].major_label_text_color === getComputedStyle(document.documentElement)
  .getPropertyValue('--ink').trim() ? (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) : 0;
return found;
"""
)
"""Contrast ratios of WCAG 2 between texts and the page; those of charts have the page's colour."""
