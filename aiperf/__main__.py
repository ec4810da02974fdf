"""The command `aiperf`: a table of verbs, each loaded only when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from aiperf import __version__
from aiperf.cli.command import Command
from aiperf.errors import EXIT_DONE, EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_USAGE, AiperfError

VERBS = {
    "run": ("primary.cli:RUN", "start a timed run and print its score"),
    "resume": ("primary.cli:RESUME", "go on with a run that was broken off"),
    "report": ("analysis.verbs.run:REPORT", "recompute score and tables of a run from its records"),
    "check": ("analysis.verbs.submission:CHECK", "check a result against every rule"),
    "rank": ("analysis.verbs.results:RANK", "rank results"),
    "compare": ("analysis.verbs.results:COMPARE", "put two results side by side"),
    "scale": ("primary.series.cli:SCALE", "weak scaling: runs with more and more replicas"),
    "profile": ("replica.profile.cli:PROFILE", "where the time and memory of a training step go"),
    "export": ("analysis.verbs.submission:EXPORT", "pack a run for submission"),
    "verify": ("analysis.verbs.run:VERIFY", "check a whole run directory and list all problems"),
    "status": ("analysis.verbs.run:STATUS", "show where a run is, from any shell"),
    "search": ("replica.cli:SEARCH", "look at the architecture search without training"),
    "hpo": ("replica.cli:HPO", "look at the hyperparameter tuner without training"),
    "slurm": ("slurm.cli:SLURM", "job scripts, cluster configuration, a test cluster"),
    "config": ("primary.importing.cli:CONFIG", "translate configurations of the earlier implementation"),
    "nodes": ("primary.nodes.cli:NODES", "find out what the machines of a cluster are"),
    "dataset": ("replica.datasets.cli:DATASET", "prepare, check or make up the images of a data set"),
    "ops": ("replica.cli:OPS", "count the operations of a network"),
}
"""Every verb: where it lives (module and name of its `Command`) and what it does."""

FOLLOW_UPS = {
    "report-scaling": "analysis.verbs.scaling:REPORT_SCALING",
    "report-profile": "analysis.verbs.profile:REPORT_PROFILE",
}
"""Second halves of verbs, which the first half hands over to (`Command.follow_up`); not in the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; the exit code is 0 done, 1 failed, 2 usage, 3 environment."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(_help())  # noqa: T201
        return EXIT_DONE if words else EXIT_USAGE
    if words[0] == "--version":
        print(f"aiperf {__version__}")  # noqa: T201
        return EXIT_DONE
    if words[0] not in VERBS and words[0] not in FOLLOW_UPS:
        return _complain(f"unknown verb {words[0]!r}; known: {', '.join(VERBS)}", EXIT_USAGE)
    return _run_verb(words[0], words[1:])


def _run_verb(verb: str, words: list[str]) -> int:
    module, _, name = (FOLLOW_UPS.get(verb) or VERBS[verb][0]).partition(":")
    command: Command = getattr(importlib.import_module(module), name)
    parser = argparse.ArgumentParser(
        prog=f"aiperf {verb}",
        description=command.description,
        epilog=f"example:\n  {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    command.configure(parser)
    arguments = parser.parse_args(words)
    try:
        code = command.execute(arguments)
        following = command.follow_up(arguments)
    except AiperfError as error:
        if arguments.debug:
            raise
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of our output is gone: not an error of ours; keep the interpreter from telling it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:  # a file that cannot be read, a full disk: the machine's, not the program's
        if arguments.debug:
            raise
        return _complain(str(error), EXIT_ENVIRONMENT)
    return max(code, main(following)) if following else code


def _complain(message: str, code: int) -> int:
    print(f"aiperf: {message}", file=sys.stderr)  # noqa: T201
    return code


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {summary}" for verb, (_, summary) in VERBS.items())
    return (
        "usage: aiperf VERB [OPTIONS]\n\n"
        "AIPerf: an AI supercomputer benchmark by automated machine learning.\n\n"
        f"verbs:\n{verbs}\n\n"
        "'aiperf VERB --help' tells the options of a verb; 'aiperf --version' tells the version.\n\n"
        "example:\n  aiperf run --preset quick --output runs/first"
    )


if __name__ == "__main__":
    sys.exit(main())
