"""The live dashboard as a user starts it, over HTTP and in a real browser."""

import http.client
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from selenium.webdriver import Chrome

from tests.support.browser import DESKTOP, PHONE, barriers, errors_of_html, open_page, show
from tests.support.hand_made import HandMadeRun, aiperf
from tests.support.processes import all_end, family
from tests.support.runs import begin, wait_for, wait_for_epochs

HOSTILE = "</title></script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


@contextmanager
def dashboard(*words: object, number: int = signal.SIGTERM) -> Iterator[str]:
    """A dashboard's address; it ends cleanly by a signal, and with it its processes."""
    program = [sys.executable, "-m", "aiperf", "dashboard", *map(str, words)]
    # In a session of its own, as from a shell: Ctrl-C reaches its whole group.
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            address, tunnel = process.stdout.readline().strip(), process.stdout.readline()
            assert "ssh -L " in tunnel
            yield address
            processes = family(process.pid)
            os.killpg(process.pid, number)
            assert process.wait(timeout=240) == 0
            assert process.stderr.read() == ""
            assert all_end(processes)
        finally:
            process.kill()


def finished(root: Path) -> HandMadeRun:
    run = HandMadeRun(root, {"run.name": HOSTILE}).at(0).release(100, replicas=2)
    run.at(1).start_trial(1).at(20).epoch(1, 1, correct=200).at(40).lose(1, HOSTILE)
    return run.end(100)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, next to a file that no address may lead to."""
    root = tmp_path_factory.mktemp("dashboard")
    (root / "secret").write_text("the secret")
    finished(root / "runs" / "one")
    finished(root / "runs" / "two")
    return root


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with dashboard(root / "runs") as address:
        yield address


def ask(address: str, path: str | None = None, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and text of an answer; the path with the token is that of the address."""
    host, _, rest = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request(method, f"/{rest}" if path is None else path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert "default-src 'none'; script-src 'self'" in str(answer.getheader("Content-Security-Policy"))
    assert answer.getheader("Set-Cookie") is None
    connection.close()
    return answer.status, text


def links(text: str) -> list[str]:
    """Addresses in a page, but for those of events, which do not end."""
    found = re.findall(r'(?:href|src|data-address)="(/[^"]*)"', text)
    return [link for link in found if "/events" not in link]


def listing(root: Path) -> dict[str, tuple[int, int, int]]:
    facts = {str(path): path.stat() for path in (root, *root.rglob("*"))}
    return {name: (fact.st_mtime_ns, fact.st_size, fact.st_mode) for name, fact in facts.items()}


def test_every_page_is_made_from_the_records_and_nothing_is_written(address: str, root: Path) -> None:
    before = listing(root)
    status, text = ask(address)
    assert status == 200
    pages, seen = links(text), set[str]()
    while pages:
        if (path := pages.pop()) not in seen:
            seen.add(path)
            status, text = ask(address, path)
            assert status == 200, path
            assert "<script>window" not in text
            pages += links(text) if text.startswith("<!doctype") else []
    reports = [path for path in seen if "/report" in path]
    assert len(reports) == 2
    assert 'id="trial-table"' in ask(address, reports[0])[1]
    assert listing(root) == before


def test_metrics_of_all_runs_are_in_the_form_that_the_reader_accepts(address: str, root: Path) -> None:
    from dashboard.runs import run_id

    query = address.partition("?")[2]
    status, text = ask(address, f"/metrics?{query}")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    ids = {run_id(root / "runs" / name) for name in ("one", "two")}
    assert {sample.labels["id"] for sample in families["aiperf_state"].samples} <= ids
    assert families["aiperf_trials"].samples[0].labels["run"] == HOSTILE
    assert families["aiperf_trials"].samples[0].value == 1
    open_text = ask(address, f"/metrics?{query}", Accept="application/openmetrics-text; version=1.0.0")[1]
    assert open_text.endswith("# EOF\n")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/run/{run}",
        "/run/{run}/report",
        "/run/{run}/events",
        "/events",
        "/metrics",
        "/live.js",
        "/library.js",
        "/nothing",
    ],
)
def test_strangers_are_refused_everywhere(address: str, root: Path, path: str) -> None:
    from dashboard.runs import run_id

    path = path.format(run=run_id(root / "runs" / "one"))
    query = address.partition("?")[2]
    assert ask(address, path)[0] == 403
    assert ask(address, f"{path}?token=wrong")[0] == 403
    assert ask(address, f"{path}?{query}&token=")[0] == 403
    assert ask(address, f"{path}?{query}", Host="evil.example")[0] == 403
    assert ask(address, f"{path}?{query}", Origin="http://evil.example")[0] == 403
    assert ask(address, path, method="POST")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/%2e%2e/secret",
        "/run/..%2f..%2fsecret",
        "/run/../../secret/report",
        "/run/0123456789ab",
        "/run/0123456789ab/report",
        "/run/0123456789ab/events",
        "/secret.js",
        "//etc/passwd",
    ],
)
def test_no_address_leads_to_a_file(address: str, path: str) -> None:
    status, text = ask(address, f"{path}?{address.partition('?')[2]}")
    assert status == 404
    assert "secret" not in text


def test_it_only_reads(address: str) -> None:
    path = f"/?{address.partition('?')[2]}"
    assert [ask(address, path, method=method)[0] for method in ("POST", "PUT", "DELETE")] == [405] * 3


def test_it_listens_on_the_loopback_interface_alone(address: str) -> None:
    port = int(address.split(":")[2].partition("/")[0])
    ends = [[*item.laddr] for item in psutil.net_connections("tcp") if item.status == "LISTEN"]
    assert [host for host, number in ends if number == port] == ["127.0.0.1"]


def test_a_socket_is_for_its_owner_alone(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "s"
    with dashboard(root / "runs" / "one", "--socket", place, number=signal.SIGINT) as address:
        assert place.stat().st_mode & 0o777 == 0o600
        refused = aiperf("dashboard", root / "runs", "--socket", place)
        assert refused.returncode == 3
        assert "another program listens there" in refused.stderr
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(place))
            path = address.removeprefix("http://localhost:8080")
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:8080\r\nConnection: close\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                assert answer.readline().split()[1] == b"200"
    assert not place.exists()


def test_a_port_in_use_is_reported(address: str, root: Path) -> None:
    refused = aiperf("dashboard", root / "runs", "--port", address.split(":")[2].partition("/")[0])
    assert refused.returncode == 3
    assert "choose another with --port" in refused.stderr


def script(browser: Chrome, text: str) -> Any:
    return browser.execute_script(text)


def shown_trials(browser: Chrome) -> int:
    return int(script(browser, "return document.querySelectorAll('#trial-table tbody tr').length"))


def open_only_run(browser: Chrome, list_address: str) -> None:
    """Follow the list's link to a run, and wait for its report."""
    browser.get(follow(browser, list_address))
    wait_for(lambda: shown_trials(browser) > 0)
    wait_for(lambda: idle(browser))


def idle(browser: Chrome) -> bool:
    """The page shows what it has heard of, charts included."""
    ready = "document.getElementById('report').ariaBusy === 'false' && document.documentElement.dataset.drawn === 'yes'"
    return bool(script(browser, f"return {ready}"))


def state(browser: Chrome) -> str:
    return str(script(browser, "return document.getElementById('live-state').textContent"))


def test_a_page_follows_its_run_to_the_end(tmp_path: Path) -> None:
    """Rows appear, and what the reader has opened and scrolled to stays."""
    run = begin(tmp_path / "first", "--set", "run.duration=1200", "--set", "training.max_epochs=3")
    try:
        wait_for_epochs(tmp_path / "first")
        with dashboard(tmp_path) as address, open_page(address, DESKTOP) as browser:
            open_only_run(browser, address)
            assert state(browser) == "running"
            script(browser, "window.mark = 1; document.querySelector('#report details').open = true")
            script(browser, "document.querySelector('#trial-table tbody td').click()")
            script(browser, "document.querySelector('#filter').focus()")
            # The heading in the middle of the window stays in its place, whatever grows above it.
            top = "document.querySelector('#best h2').getBoundingClientRect().top"
            script(browser, f"scrollBy(0, {top} - 100)")
            place = script(browser, f"return {top}")
            opened = script(browser, "return document.querySelector('#opened h3').textContent")
            before = shown_trials(browser)
            wait_for(lambda: shown_trials(browser) > before)
            run.send_signal(signal.SIGINT)
            wait_for(lambda: state(browser) == "interrupted")
            wait_for(lambda: idle(browser))
            assert "aiperf resume" in script(browser, "return document.getElementById('live-sentence').textContent")
            assert script(browser, "return [window.mark, document.querySelector('#report details').open]") == [1, True]
            assert script(browser, "return document.activeElement.id") == "filter"
            assert abs(script(browser, f"return {top}") - place) < 2
            assert script(browser, "return document.querySelector('#opened h3').textContent") == opened
            charts = script(browser, "return document.querySelectorAll('.plot').length")
            assert script(browser, "return Bokeh.documents.length") == charts, "charts of earlier pages are left"
            assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=240)


def follow(browser: Chrome, address: str) -> str:
    """The address of the first run of a list, once the list knows it."""
    browser.get(address)
    wait_for(lambda: script(browser, "return document.querySelector('#runs a')?.href"))
    return str(script(browser, "return document.querySelector('#runs a').href"))


def test_no_rule_of_axe_is_broken_and_all_is_html(address: str, tmp_path: Path) -> None:
    with open_page(address, DESKTOP) as browser:
        run = follow(browser, address)
        for size, dark, place in itertools.product((DESKTOP, PHONE), (False, True), (address, run)):
            show(browser, place, size, dark)
            wait_for(lambda: script(browser, "return document.querySelector('#runs a') !== null") or idle(browser))
            assert barriers(browser) == [], (size, dark, place)
            assert script(browser, "return document.documentElement.scrollWidth") == size[0]
    pages = [tmp_path / "list.html", tmp_path / "run.html"]
    for page, place in zip(pages, (address, run), strict=True):
        page.write_text(ask(place)[1])
    assert errors_of_html(pages) == []


def note(browser: Chrome) -> str:
    return str(script(browser, "return document.getElementById('live-note').textContent"))


def test_a_page_says_that_its_dashboard_is_gone_and_that_there_is_another_one(root: Path) -> None:
    """The address of both is the same, as that of a tunnel's end: the token alone differs."""
    run = root / "runs" / "one"
    with ExitStack() as browsers:
        with dashboard(run) as address:
            browser = browsers.enter_context(open_page(address, DESKTOP, dark=True))
            wait_for(lambda: shown_trials(browser) > 0)
            assert (state(browser), note(browser)) == ("ended", "")
        wait_for(lambda: "does not answer" in note(browser))
        with dashboard(run, "--port", address.split(":")[2].partition("/")[0]):
            wait_for(lambda: "open the address that it has printed now" in note(browser))
            dot, grey, words, paper = script(browser, COLOURS)
            assert dot == grey
            assert (words, paper) == ("rgb(255, 141, 143)", "rgb(20, 22, 26)"), "a contrast of 8.2"


COLOURS = """
const [badge, note] = ['live-state', 'live-note'].map(id => document.getElementById(id));
const probe = document.createElement('i');
probe.style.color = 'var(--soft)';
document.body.append(probe);
const style = getComputedStyle;
return [style(badge, '::before').backgroundColor, style(probe).color, style(note).color,
  style(document.body).backgroundColor];
"""


def test_names_and_reasons_of_a_hostile_run_are_text(address: str) -> None:
    with open_page(address, DESKTOP) as browser:
        wait_for(lambda: script(browser, "return document.querySelector('#runs a')?.textContent.includes('<img')"))
        open_only_run(browser, address)
        assert state(browser) == "ended"
        assert script(browser, "return window.hacked") is None
        assert HOSTILE in script(browser, "return document.querySelector('#report h1').textContent")
        assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def measured(browser: Chrome) -> dict[str, float]:
    """Nodes, listeners and bytes of the page that cannot be collected."""
    browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    found = {item["name"]: item["value"] for item in metrics}
    return {name: found[name] for name in ("Nodes", "JSEventListeners", "JSHeapUsedSize")}


def update(browser: Chrome, times: int) -> None:
    """Have the page fetch its run and take it over, as it does when the run has changed."""
    for _ in range(times):
        script(
            browser,
            "document.documentElement.dataset.drawn = 'no';document.dispatchEvent(new Event('visibilitychange'))",
        )
        wait_for(lambda: idle(browser))


def test_a_page_that_is_watched_for_long_grows_not_and_keeps_the_readers_place(address: str) -> None:
    with open_page(address, DESKTOP) as browser:
        open_only_run(browser, address)
        browser.execute_cdp_cmd("Performance.enable", {})
        script(
            browser,
            "window.figure = document.querySelector('#plot-phases > *');"
            "document.querySelector('#trial-table tbody button').click();"
            "document.querySelector('#trial-table th button').focus();"
            "getSelection().selectAllChildren(document.getElementById('sentence'))",
        )
        update(browser, 20)  # until then the heap also takes the code that the browser compiles
        before = measured(browser)
        update(browser, 30)
        after = measured(browser)
        for name, value in before.items():
            assert after[name] <= 1.1 * value, (name, before, after)
        assert script(browser, "return document.activeElement.closest('th')?.textContent") == "trial"
        assert script(browser, "return getSelection().toString()") == script(
            browser, "return document.getElementById('sentence').textContent"
        )
        assert script(browser, "return window.figure.isConnected"), "the figures stand"
        assert script(browser, "return document.getElementById('opened').hidden") is False
        assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
