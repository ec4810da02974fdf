"""`aiperf rank`: results in order, after plans of the official ones were made again."""

import argparse
from collections.abc import Sequence

from aiperf.cli.command import Command
from aiperf.run_directory.paths import RunPaths
from analysis.verbs.results import configure_rank, execute_rank
from referee.check import add_replay


def _configure(parser: argparse.ArgumentParser) -> None:
    configure_rank(parser)
    add_replay(parser)


def _execute(arguments: argparse.Namespace) -> int:
    def repeat(paths: RunPaths) -> Sequence[str]:
        if arguments.replay == 0:
            return ()
        from referee.replay import replay  # noqa: PLC0415  (loads the search)

        return [str(difference) for difference in replay(paths, arguments.replay).differences]

    return execute_rank(arguments, repeat)


RANK = Command(
    description=(
        "Rank results. Run directories and archives are recomputed, and plans of official runs are made again; a bare "
        "report.json is unverified and has no rank. Runs of one signer with the same name, replicas, devices and "
        "configuration are one system, ranked by their median run; systems whose 95 % intervals overlap that "
        "of the first of a rank share it."
    ),
    example="aiperf rank runs/* --by regulated --html ranking.html",
    configure=_configure,
    execute=_execute,
)
