"""Every kind of page: for all readers, as HTML, on paper, and without a network."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from aiperf.records.bodies import RunEnded
from aiperf.run_directory.paths import RunPaths
from analysis.output.artifacts import write_report
from analysis.output.figures.paper import paper_drawings
from analysis.output.figures.profile import profile_chart, sweep_chart, timeline_chart
from analysis.output.page import vocabulary as words
from analysis.output.pages import render
from analysis.reading.profile import (
    Allocator,
    HardwareCounters,
    KindWork,
    MemorySweep,
    Profile,
    ProfiledLayers,
    ProfiledOperation,
    StepSettings,
    SweepPoint,
    Timeline,
    TimelineBlock,
)
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.results.paper import read_lines
from analysis.results.ranking import rank
from analysis.results.result_store.facts import Facts, run_facts, screening_facts
from analysis.results.result_store.trend import TrendDocument, trend
from analysis.results.scaling.chart import scaling_chart
from analysis.results.scaling.rows import scaling_rows
from analysis.results.science import rank_workloads
from analysis.results.source import read_result
from analysis.verbs.figures import figures_page
from analysis.verbs.ranking_page import ranking_page
from analysis.verbs.scaling import scaling_page
from analysis.verbs.screening import screening_page
from analysis.verbs.trend import trend_page
from rehearsal.lifecycle import conduct
from tests.faults.rehearsals import drawn_rehearsal
from tests.support.browser import DESKTOP, PHONE, barriers, drawn, errors_of_html, open_page, show
from tests.support.hand_made import T0_MS, HandMadeRun
from tests.support.nodes.health import HOST, card, write
from tests.support.nodes.screened import screened
from tests.support.reports.pages import page_of, resumed, work
from tests.support.runs import wait_for
from tests.support.science.hybrid import whole_training
from tests.unit.analysis.result_store.made import result, screening
from tests.unit.analysis.scaling.made import one_run
from tests.unit.analysis.science.runs import run_of_four

REPORTS = ("report", "running", "science", "hybrid")
KINDS = (
    *REPORTS,
    "interrupted",
    "unstarted",
    "rehearsal",
    "ranking",
    "scaling",
    "figures",
    "profile",
    "sweep",
    "screening",
    "large_screening",
    "trend",
)


def profile() -> Profile:
    """A step of two operations, with something missing."""
    parts = (("Conv2D", "forward", 0.1), ("Conv2DBackpropFilter", "backward", 0.2), ("Sgd", "update", 0.01))
    blocks = (
        TimelineBlock(lane="cpu 0", phase="forward", operation="Conv2D", start_s=0, end_s=0.15),
        TimelineBlock(lane="cpu 0", phase="backward", operation="Sum", start_s=0.15, end_s=0.45),
    )
    return Profile(
        **RECORDED,
        architecture="a" * 64,
        rule_set="aiperf-1",
        image_operations=10**9,
        steps=2,
        step_s=0.5,
        operations=tuple(
            ProfiledOperation(operation=name, phase=phase, library="oneDNN", seconds=seconds, calls=53)
            for name, phase, seconds in parts
        ),
        layers=(ProfiledLayers(kind="conv", layers=53, seconds=0.3, operations=10**10),),
        work=(
            KindWork(kind="conv", layers=53, counted=10**10, executed=9e9, reason=""),
            KindWork(kind="relu", layers=49, counted=0, executed=None, reason="there is no rule for Relu"),
        ),
        work_source="TensorFlow's profiler",
        phases={"input": 0.01, "forward": 0.15, "backward": 0.3, "update": 0.04},
        outside={"evaluation": 0.2, "checkpoint": 0.1},
        timeline=Timeline(seconds=0.5, blocks=blocks),
        memory_bytes={"weights": 10**8, "activations": 3 * 10**8},
        allocator=Allocator(
            name="cpu", peak_bytes=4 * 10**8, lifetime_peak_bytes=5 * 10**8, fragmentation=0.1, explained=0.99
        ),
        process_peak_bytes=10**9,
        limit_bytes=8 * 10**9,
        counters=HardwareCounters(
            per_step={"cycles": 1e9},
            missing={"instructions": "perf is not installed"},
            executed_operations=None,
            counted_operations=10**10,
        ),
    )


SETTINGS = StepSettings(
    architecture=None,
    dataset="digits",
    data_dir=None,
    synthetic_input=True,
    batch_size=16,
    precision="float32",
    xla=False,
    steps=2,
)

RECORDED: dict[str, Any] = {
    "settings": SETTINGS,
    "software": "TensorFlow 2.21.0, Keras 3.12.0",
    "device": "AMD EPYC 9654, 8 CPUs",
    "recorded": "2026-05-04T03:02:01+00:00",
}


def sweep() -> MemorySweep:
    """Three batches, of which the last does not fit."""
    points = tuple(
        SweepPoint(
            value=size,
            elements=size * 3072,
            fits=size < 64,
            reason="" if size < 64 else "not enough memory",
            step_s=0.1 * size,
            weights_bytes=10**8,
            intermediate_bytes=size * 10**7,
            temporary_bytes=10**6,
            unexplained_bytes=10**5,
            process_peak_bytes=10**9,
        )
        for size in (16, 32, 64)
    )
    return MemorySweep(
        **RECORDED, axis="batch size", limit_bytes=8 * 10**9, points=points, largest_measured=32, largest_predicted=200
    )


def months(root: Path) -> TrendDocument:
    """Runs of a system of which the last is slow, and screenings in which a device gets slower."""
    runs = [Facts(run_facts(result(day, score))) for day, score in enumerate((100.0, 99.0, 101.0, 80.0))]
    slow: list[dict[tuple[str, str], float]] = [{("gpu5", "triad"): 0.96**day} for day in range(4)]
    screenings = [screening_facts(root / f"{day}", screening(root, day, {1: own})) for day, own in enumerate(slow)]
    series = (*trend([*runs, *screenings]), *trend(screenings, "node"))
    return TrendDocument(by="system", since=None, series=series, problems=("nothing: there is no result",))


def interrupted(root: Path) -> HandMadeRun:
    """A run that was interrupted after a loss, with prices, compiled steps and a sick device."""
    run = HandMadeRun(root, {"price.node_hour": 3.6, "price.kwh": 0, "price.currency": "EUR"})
    run.at(0).release(100, replicas=2)
    work(run, 1, 1, 200, hyperparameters={"batch_size": 64})
    run.built(1, compiled="33 regions in one graph").at(40).lose(1)
    run.paths.system.write_text(json.dumps({"0": {"host": HOST, "accelerators": 1, "accelerator": "NVIDIA H200"}}))
    write(run, {t: card(CLOCKS_EVENT_REASONS=0x40, XID_ERRORS=79) for t in range(0, 50, 10)})
    run.at(50).primary.append(RunEnded(reason="interrupted", end_ms=T0_MS + 50_000))
    return run


def rehearsed(root: Path) -> Path:
    """The page of a rehearsal whose primaries and replicas die."""
    conduct(root, drawn_rehearsal(11, 3, "10m"))
    data = read_run(RunPaths(root))
    return write_report(data.paths.report, data, build_report(data))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind."""
    root = tmp_path_factory.mktemp("pages")
    running = HandMadeRun(root / "running").at(0).release(100, replicas=2)
    work(running, 1, 1, 200)
    runs = {
        "report": resumed(root / "report"),
        "running": running,
        "science": run_of_four(root / "science"),
        "hybrid": whole_training(root / "hybrid").complete(25),
    }
    results = [read_result(root / name) for name in runs]
    runs |= {
        "interrupted": interrupted(root / "interrupted"),
        "unstarted": HandMadeRun(root / "unstarted").at(0).lose(0),
    }
    found = {name: page_of(run) for name, run in runs.items()} | {"rehearsal": rehearsed(root / "rehearsal")}
    series = scaling_rows([one_run(root / "one", 1, 2, 4), one_run(root / "two", 2, 3, 4)])
    step, memory = profile(), sweep()
    lines = read_lines([root / "one", root / "two"])
    drawings = {"profile": profile_chart(step), "timeline": timeline_chart(step)}
    texts = {
        "ranking": ranking_page(rank(results, "score"), rank_workloads(results)),
        "scaling": scaling_page(series, scaling_chart(series), {str(series[0].origin): "one/report/report.html"}),
        "figures": figures_page(lines, paper_drawings(lines)),
        "profile": render("profile.html", profile=step, drawings=drawings, words=words),
        "screening": screening_page(screened(root, 6, {1: {("gpu5", "triad"): 0.7}}, {3: [None]}, fabric=True)),
        "large_screening": screening_page(screened(root, 80, fabric=True)),
        "trend": trend_page(months(root)),
        "sweep": render("sweep.html", sweep=memory, drawings={"sweep": sweep_chart(memory)}, words=words),
    }
    for name, text in texts.items():
        found[name] = root / f"{name}.html"
        found[name].write_text(text)
    assert set(found) == set(KINDS)
    return found


@pytest.fixture(scope="module")
def browser(pages: dict[str, Path]) -> Iterator[Chrome]:
    with open_page(pages["report"], DESKTOP) as driver:
        yield driver


def script(browser: Chrome, text: str) -> Any:
    return browser.execute_script(text)


def opened(browser: Chrome, page: Path, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
    show(browser, page, size, dark)
    if script(browser, "return document.getElementById('charts') !== null"):
        wait_for(lambda: drawn(browser))


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_rule_of_axe_is_broken(
    browser: Chrome, pages: dict[str, Path], kind: str, dark: bool, size: tuple[int, int]
) -> None:
    opened(browser, pages[kind], size, dark)
    assert barriers(browser) == []
    assert script(browser, "return document.documentElement.scrollWidth") == size[0], "no sideways scrolling"
    assert script(browser, "return document.querySelectorAll('[title]').length") == 0, "no meaning for a mouse alone"
    entries = script(browser, ENTRIES)
    assert entries or kind not in ("report", "hybrid"), "they are found"
    assert [name for name, is_whole in entries if not is_whole] == [], "entries of legends are not cut"


def test_axe_finds_what_is_wrong(browser: Chrome, tmp_path: Path) -> None:
    page = tmp_path / "wrong.html"
    page.write_text("<!doctype html><title>x</title><p style='color:#999;background:#fff'>pale</p><img src=data:,>")
    show(browser, page, DESKTOP, False)
    rules = {line.partition(":")[0] for line in barriers(browser)}
    assert {"color-contrast", "image-alt", "html-has-lang", "landmark-one-main"} <= rules


def test_pages_are_html(pages: dict[str, Path], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.html"
    wrong.write_text("<!doctype html><html lang=en><title>x</title><p><div></p>")
    found = errors_of_html([*pages.values(), wrong])
    assert found
    assert [line for line in found if wrong.name not in line] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_lets_nothing_be_loaded_or_added(browser: Chrome, pages: dict[str, Path], kind: str) -> None:
    opened(browser, pages[kind])
    script(
        browser,
        "const added = document.createElement('script'); added.textContent = 'window.added = 1';"
        "document.body.append(added)",
    )
    assert script(browser, "return window.added") is None
    assert "Content Security Policy" in str(browser.get_log("browser"))  # type: ignore[no-untyped-call]
    policy = script(browser, "return document.querySelector('meta[http-equiv]').content")
    assert policy.startswith("default-src 'none'; ")


@pytest.mark.parametrize("kind", REPORTS)
def test_charts_have_words_and_lead_to_their_data(browser: Chrome, pages: dict[str, Path], kind: str) -> None:
    page = pages[kind]
    opened(browser, page)
    links = script(browser, "return [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    files = {link for link in links if not link.startswith("#")}
    assert {"tables/timeline.csv", "figures/score.svg", "report.json"} <= files
    assert [link for link in files if not (page.parent / link).is_file()] == []
    label = script(browser, "return document.getElementById('plot-score').ariaLabel")
    assert "at first" in label
    assert "at most" in label
    assert script(browser, TAB_STOPS) == 0, "nothing without a name stops the tabulator"


@pytest.mark.parametrize("kind", REPORTS)
def test_on_paper_charts_end_where_they_end_on_the_screen(browser: Chrome, pages: dict[str, Path], kind: str) -> None:
    opened(browser, pages[kind], dark=kind == "report")
    screen = script(browser, "return [...document.querySelectorAll('.plot')].map(e => e.offsetWidth).filter(Boolean)")
    script(browser, "dispatchEvent(new Event('beforeprint'))")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        wait_for(lambda: script(browser, "return [...document.images].every(image => image.complete)"))
        pictures = script(browser, PICTURES)
        assert len(pictures) == len(screen) >= 2
        assert all(is_shown and right <= 720 for _, right, is_shown in pictures)
        assert all(width == pytest.approx(asked, abs=2) for (width, _, _), asked in zip(pictures, screen, strict=True))
        assert script(browser, "return document.querySelectorAll('details:not([open])').length") == 0
        assert script(browser, "return document.documentElement.scrollWidth") <= 720
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    script(browser, "dispatchEvent(new Event('afterprint'))")
    assert script(browser, "return document.images.length") == 0
    assert script(browser, "return document.getElementById('meanings').open") is False


@pytest.mark.parametrize("kind", ["profile", "sweep"])
def test_the_page_of_a_step_says_what_was_measured_on_what_and_when(pages: dict[str, Path], kind: str) -> None:
    text = pages[kind].read_text()
    assert re.search(r"<h1>[^<]* ResNet-50[^<]*</h1>", text)
    assert "TensorFlow 2.21.0, Keras 3.12.0, on AMD EPYC 9654, 8 CPUs; 4 May 2026 03:02 UTC." in text


def test_the_science_page_begins_with_time_to_quality(browser: Chrome, pages: dict[str, Path]) -> None:
    opened(browser, pages["science"])
    first, second = script(browser, "return document.getElementById('score').innerText.split('\\n')")
    assert first.startswith("24.7 s time to quality of resnet-hep (17.5 s to 31.8 s); 2 of 2 models")
    assert second.startswith("32.2 s time to quality of cosmoflow; 1 of 2 models reached the target")
    texts = script(browser, "return [...document.querySelectorAll('#rates td')].map(cell => cell.textContent)")
    assert "193.6 MOPS" in texts
    assert script(browser, "return getComputedStyle(document.querySelector('.wide')).backgroundImage") != "none"


ENTRIES = """
const found = root => [...root.querySelectorAll('*')].flatMap(e => [...(e.shadowRoot ? found(e.shadowRoot) : []),
  ...(e.matches('.bk-item, .legend > *') && e.getBoundingClientRect().width ? [e] : [])]);
return [...document.querySelectorAll('.plot, .legend')].flatMap(place => found({querySelectorAll: () => [place,
  ...place.querySelectorAll('*')]}).map(e => [e.textContent, e.scrollWidth <= e.clientWidth
  && e.getBoundingClientRect().right <= place.getBoundingClientRect().right + 0.5]));
"""
"""Texts of the entries of all legends, and whether each ends where its figure does, or before."""

TAB_STOPS = """
const stops = root => [...root.querySelectorAll('*')].reduce((sum, e) => sum + (e.shadowRoot ? stops(e.shadowRoot) : 0)
  + (e.tabIndex >= 0 && !e.title), 0);
return [...document.querySelectorAll('.plot')].reduce((sum, e) => sum + stops(e), 0);
"""

PICTURES = """
const ratio = window.devicePixelRatio;
return [...document.querySelectorAll('.printed')].filter(e => e.closest('.plot').offsetWidth).map(
  e => [parseFloat(e.style.width), e.getBoundingClientRect().right, e.naturalWidth > 0 && e.offsetWidth > 0]);
"""
