"""The live dashboard and the report page in Chromium: first paint, and an epoch's way to the page.

python -m benchmarks.browser.dashboard [--epochs N] [--replicas N] [--trials N] [--rounds N]
    [--format json]

First a run in progress with the simulated trainer: the first contentful paint of its page, and for
N epochs the seconds from the time of the record to its epoch in the table of trials. Then a run of
512 replicas and 12 hours, as `benchmarks.scale.made` makes it: the first paint, the first
sentence about the run, and the whole report of the dashboard; and the page of `aiperf report`, from
opening the file until all charts are drawn. Medians and maxima; needs Chromium.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from selenium.webdriver import Chrome

from aiperf.records.bodies import EpochCompleted
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.paths import RunPaths, open_run
from benchmarks.scale.made.records import generate
from tests.support.browser import DESKTOP, open_page, show
from tests.support.runs import begin, wait_for_epochs

LOOK_S = 0.02

EPOCHS_SHOWN = """
const heads = [...document.querySelectorAll('#trial-table th')].map(head => head.textContent.trim());
const column = heads.findIndex(head => head === 'epochs');
const rows = [...document.querySelectorAll('#trial-table tbody tr')];
return rows.reduce((sum, row) => sum + Number(row.cells[column]?.dataset.v ?? 0), 0);
"""

PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SENTENCE = "return document.getElementById('live-sentence').textContent.trim().length > 0"
REPORT = "return document.documentElement.dataset.drawn === 'yes'"


@contextmanager
def dashboard(run: Path) -> Iterator[str]:
    """The address of a dashboard that was just started."""
    program = [sys.executable, "-m", "aiperf", "dashboard", str(run), "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def seconds_until(done: Callable[[], object], limit_s: float = 600) -> float:
    """Seconds until something is true; raises TimeoutError after `limit_s`."""
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > limit_s:
            raise TimeoutError
        time.sleep(LOOK_S)
    return time.monotonic() - begun


def first_paint_s(browser: Chrome) -> float:
    """From the navigation to the first words of the page, by the browser's own clock."""
    seconds_until(lambda: browser.execute_script(PAINT), 60)
    return float(browser.execute_script(PAINT)) / 1000


def more_epochs(browser: Chrome, shown: int) -> bool:
    """True if the page shows more epochs than before."""
    return bool(browser.execute_script(EPOCHS_SHOWN) > shown)


def epoch_times_s(root: Path) -> list[float]:
    """The times of all epochs' records, in order; seconds since 1970."""
    records = HistoryReader(open_run(root)).read_new().records
    return sorted(record.time_ms / 1000 for record in records if isinstance(record.body, EpochCompleted))


def live(root: Path, epochs: int) -> dict[str, list[float]]:
    """First paint of a run in progress, and delays of its epochs; seconds."""
    run = begin(root, "--set", "run.duration=3600", "--set", "training.max_epochs=5")
    delays, paints = list[float](), list[float]()
    try:
        wait_for_epochs(root)
        with dashboard(root) as address, open_page(address, DESKTOP) as browser:
            paints.append(first_paint_s(browser))
            seconds_until(lambda: browser.execute_script(EPOCHS_SHOWN))
            while len(delays) < epochs:
                shown = int(browser.execute_script(EPOCHS_SHOWN))
                seconds_until(partial(more_epochs, browser, shown))
                # In order of time this is the first epoch that the page did not show yet.
                delays.append(time.time() - epoch_times_s(root)[shown])
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=120)
    return {"live_first_paint_s": paints, "epoch_on_page_s": delays}


def large(root: Path, rounds: int) -> dict[str, list[float]]:
    """First paint, first sentence and whole report of a large run, each time by a new server."""
    paints, sentences, reports = [], [], []
    for _ in range(rounds):
        with dashboard(root) as address, open_page("about:blank", DESKTOP) as browser:
            begun = time.monotonic()
            show(browser, address, DESKTOP, dark=False)
            paints.append(first_paint_s(browser))
            seconds_until(lambda: browser.execute_script(SENTENCE))
            sentences.append(time.monotonic() - begun)
            seconds_until(lambda: browser.execute_script(REPORT))
            reports.append(time.monotonic() - begun)
    return {"large_first_paint_s": paints, "large_sentence_s": sentences, "large_report_s": reports}


def report_page(root: Path, rounds: int) -> dict[str, list[float]]:
    """From opening the page of a report to its last chart, in a new browser each time."""
    subprocess.run([sys.executable, "-m", "aiperf", "report", str(root)], check=True, stdout=subprocess.DEVNULL)
    seconds = []
    for _ in range(rounds):
        with open_page("about:blank", DESKTOP) as browser:
            begun = time.monotonic()
            show(browser, RunPaths(root).report / "report.html", DESKTOP, dark=False)
            seconds_until(lambda: browser.execute_script(REPORT))
            seconds.append(time.monotonic() - begun)
    return {"report_page_s": seconds}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.browser.dashboard")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=512)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--architectures", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = live(Path(name) / "live", arguments.epochs)
        paths = generate(Path(name) / "large", arguments.replicas, arguments.trials, arguments.architectures)
        found |= large(paths.root, arguments.rounds)
        found |= report_page(paths.root, max(3, arguments.rounds))
    result = {key: {"median": statistics.median(values), "max": max(values)} for key, values in found.items()}
    if arguments.format == "json":
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            print(f"{key:<24} median {value['median']:8.2f}   max {value['max']:8.2f}")


if __name__ == "__main__":
    main()
