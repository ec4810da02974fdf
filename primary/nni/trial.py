"""A trial as NNI runs it, on the primary's node: it follows a job and reports its epochs; a replica does the work.

How it exits is NNI's word for the end: 0 succeeded, 1 failed, by a signal cancelled: the end of the run broke it off.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import nni
import requests
from nni.experiment import rest

from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.facts import EpochFacts
from aiperf.run_directory.claim import is_held_here
from aiperf.run_directory.paths import RunPaths
from primary.nni.follower import End, Follower
from primary.nni.portal import port_of

SHOWN = ("epoch", "loss", "validation_loss", "learning_rate")
"""What the portal shows of an epoch beside its quality."""

LOOK_INTERVAL_S = 1.0
REGISTRATION_TIMEOUT_S = 60.0


def own_parameters() -> dict[str, Any]:
    """The parameters that NNI's portal shows for this trial. Raises RuntimeError where NNI does not know it.

    `nni.get_next_parameter` gives them to whichever of several new trials asks first, so it does not tell.
    """
    nni.get_next_parameter()  # reports are refused before it
    port = port_of("NNI_TRIAL_COMMAND_CHANNEL")
    give_up_s = time.monotonic() + REGISTRATION_TIMEOUT_S
    while time.monotonic() < give_up_s:
        try:
            shown = rest.get(port, f"/trial-jobs/{nni.get_trial_id()}").get("hyperParameters")
            if shown:
                return dict(json.loads(shown[0])["parameters"])
        except requests.RequestException:
            pass  # it is registered a moment after its start
        time.sleep(0.2)
    raise RuntimeError(f"NNI does not know of trial {nni.get_trial_id()}")


def follow(paths: RunPaths, parameters: dict[str, Any]) -> End:
    """Report the epochs of a job until it ends."""
    follower = Follower(paths, parameters["trial"], parameters["replica"])
    while True:
        driven = is_held_here(paths.claim)
        for news in follower.look():
            if isinstance(news, End):
                return news
            _report(news)
        if "architecture" not in parameters:
            return End(None, failure="its replica was lost before the training began")
        if not driven:
            return End(None, failure="its primary was lost")
        time.sleep(LOOK_INTERVAL_S)


def _report(facts: EpochFacts) -> None:
    values = {name: getattr(facts, name) for name in SHOWN}
    quality = facts.quality or 0.0
    print(json.dumps({"quality": quality, **values}), flush=True)  # noqa: T201
    nni.report_intermediate_result({"default": quality, **values})


def main(argv: list[str] | None = None) -> int:
    """Follow the trial that NNI has started this process for."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # NNI's way to end a trial; a traceback would tell nothing
    parser = argparse.ArgumentParser(prog="python -m primary.nni.trial", description="A trial under NNI.")
    parser.add_argument("--run", type=Path, required=True, help="run directory")
    paths = RunPaths(parser.parse_args(argv).run)
    parameters = own_parameters()
    end = follow(paths, parameters)
    if end.failure is not None:
        print(f"trial {parameters['trial']} failed: {end.failure}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if end.result is None:
        signal.raise_signal(signal.SIGINT)
    nni.report_final_result({"default": end.result, "best_accuracy": end.best_accuracy})
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
