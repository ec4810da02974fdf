"""A trial as NNI runs it, on the primary's node: it follows a job and reports its epochs.

NNI reads the end from its exit: 0 succeeded, 1 failed, a signal cancelled (interrupted by the end
of the run).
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

import requests

from aiperf.clock import Clock, SystemClock
from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.facts import EpochFacts
from aiperf.files import keep_others_from_writing
from aiperf.run_directory.claim import is_held_here
from aiperf.run_directory.paths import RunPaths
from primary.background.outputs import ignore_hangups
from primary.nni.follower import End, Follower
from primary.nni.json_messages import read_plainly
from primary.nni.portal import port_of
from primary.nni.trial_imports import nni, rest

SHOWN = ("epoch", "loss", "validation_loss", "learning_rate")
"""The portal shows these facts of an epoch, and its quality."""

LOOK_INTERVAL_S = 1.0
REGISTRATION_TIMEOUT_S = 60.0
REGISTRATION_INTERVAL_S = 0.2


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
