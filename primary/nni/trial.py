"""A trial as NNI runs it, on the primary's node: it follows a job and reports its epochs.

NNI reads the end from its exit: 0 succeeded, 1 failed, a signal cancelled (interrupted by the end
of the run).
"""

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from aiperf.clock import Clock, SystemClock
from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.facts import EpochFacts
from aiperf.files import keep_others_from_writing
from aiperf.records.entries import TrialLedger
from aiperf.records.history_files import HistoryReader
from aiperf.records.ledger import Ledger
from aiperf.run_directory.claim import is_held_here
from aiperf.run_directory.paths import RunPaths
from primary.background.outputs import ignore_hangups
from primary.nni.library import nni, read_plainly, rest
from primary.nni.portal import port_of

SHOWN = ("epoch", "loss", "validation_loss", "learning_rate")
"""The portal shows these facts of an epoch, and its quality."""

LOOK_INTERVAL_S = 1.0
REGISTRATION_TIMEOUT_S = 60.0
REGISTRATION_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class End:
    """The end of a trial: its `result` for the search, or the reason of its `failure`.

    With neither, the trial was interrupted by the end of the run.
    """

    best_accuracy: float | None
    result: float | None = None
    failure: str | None = None


class Follower:
    """Reports the epochs and the end of a trial from the records of its replica and the primary."""

    def __init__(self, paths: RunPaths, trial: int, replica: int) -> None:
        self._reader = HistoryReader(paths, roles=("primary", f"replica-{replica:04d}"))
        self._ledger = Ledger(latest_progress_only=True)
        self._trial = trial
        self._reported = 0

    def look(self) -> Iterator[EpochFacts | End]:
        """Take in the news since the last look; the end comes last. Raises OSError."""
        for batch in self._reader.read_files():
            self._ledger.add(batch.records)
        entry = self._ledger.trial(self._trial)
        for number in sorted(number for number in entry.epochs if number > self._reported):
            self._reported = number
            yield entry.epochs[number].body
        end = self._end(entry)
        if end is not None:
            yield end

    def _end(self, entry: TrialLedger) -> End | None:
        if entry.failed is not None:
            return End(entry.accuracy, failure=f"{entry.failed.body.kind}: {entry.failed.body.reason}")
        if entry.ended is not None:
            stopped = entry.ended.body.reason == "stopped"
            return End(entry.accuracy, None if stopped else entry.search_accuracy)
        if self._ledger.died_ms(entry) is not None:
            return End(entry.accuracy, failure="its replica or its primary was lost")
        return None


def own_parameters(clock: Clock) -> dict[str, Any]:
    """The parameters that NNI's portal shows for this trial.

    Raises RuntimeError if NNI does not know the trial.

    The answer of `nni.get_next_parameter` may belong to another trial: NNI gives it to whichever
    new trial asks first.
    """
    nni.get_next_parameter()  # NNI refuses reports before this call
    port = port_of("NNI_TRIAL_COMMAND_CHANNEL")
    give_up_s = clock.monotonic_s() + REGISTRATION_TIMEOUT_S
    while clock.monotonic_s() < give_up_s:
        try:
            shown = rest.get(port, f"/trial-jobs/{nni.get_trial_id()}").get("hyperParameters")
            if shown:
                return dict(json.loads(shown[0])["parameters"])
        except requests.RequestException:
            pass  # NNI registers a trial only after its start
        clock.pause(REGISTRATION_INTERVAL_S)
    raise RuntimeError(f"NNI does not know of trial {nni.get_trial_id()}")


def follow(paths: RunPaths, parameters: dict[str, Any], clock: Clock) -> End:
    """Report the epochs of a job until it ends."""
    follower = Follower(paths, parameters["trial"], parameters["replica"])
    while True:
        # Before the look at the records: a primary that has let go by now has written all of its
        # own.
        held = is_held_here(paths.claims, otherwise=True)
        for news in follower.look():
            if isinstance(news, End):
                return news
            _report(news)
        # A job is offered without it if it failed before it started.
        if "architecture" not in parameters:
            return End(None, failure="its replica was lost before the training began")
        if not held:
            return End(None, failure="its primary was lost")
        clock.pause(LOOK_INTERVAL_S)


def _report(facts: EpochFacts) -> None:
    values = {name: getattr(facts, name) for name in SHOWN}
    quality = facts.quality or 0.0
    print(json.dumps({"quality": quality, **values}), flush=True)  # noqa: T201
    nni.report_intermediate_result({"default": quality, **values})


def final_metrics(end: End) -> dict[str, float | None]:
    """The metrics of a trial that ended well: what was measured is what NNI compares and plots.

    The search gets a prediction in warm-up rounds, which may be above every measured accuracy.
    """
    return {"default": end.best_accuracy, "search_accuracy": end.result}


def main(argv: list[str] | None = None) -> int:
    """Follow the trial that this process was started for."""
    keep_others_from_writing()
    ignore_hangups()
    read_plainly()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # NNI ends a trial by it; a traceback would say nothing
    parser = argparse.ArgumentParser(prog="python -m primary.nni.trial", description="A trial under NNI.")
    parser.add_argument("--run", type=Path, required=True, help="run directory")
    paths = RunPaths(parser.parse_args(argv).run)
    clock = SystemClock()
    parameters = own_parameters(clock)
    end = follow(paths, parameters, clock)
    if end.failure is not None:
        print(f"trial {parameters['trial']} failed: {end.failure}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if end.result is None:
        signal.raise_signal(signal.SIGINT)
    nni.report_final_result(final_metrics(end))
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
