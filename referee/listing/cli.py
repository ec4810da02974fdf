"""`aiperf list`: the public list of results as a static site."""

import argparse
from pathlib import Path

from aiperf.cli.command import Command, add_action
from aiperf.cli.lines import say, warn
from aiperf.cli.units import count
from aiperf.errors import EXIT_DONE
from referee.check import add_replay

EXAMPLE = "aiperf list build submissions --output site"


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="build")
    build = add_action(actions, "build", "make or renew the site of a folder of signed archives", EXAMPLE)
    build.add_argument(
        "submissions",
        type=Path,
        metavar="SUBMISSIONS",
        help="folder of archives; those below YYYY-MM/ or YYYY-MM-DD/ are of that edition",
    )
    build.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="SITE",
        help="folder of the site; what it has of archives that are the same is kept",
    )
    build.add_argument(
        "--signers",
        type=Path,
        metavar="FILE",
        help="allowed signers, as ssh-keygen takes them (default: SUBMISSIONS/signers)",
    )
    add_replay(build)


def _execute(arguments: argparse.Namespace) -> int:
    from referee.listing.site import build  # noqa: PLC0415  (draws figures)

    site = arguments.output
    built = build(arguments.submissions, site, arguments.signers, arguments.replay)
    for problem in built.problems:
        warn(f"not read: {problem.place}: {problem.reason}")
    say(
        f"{site / 'index.html'}: {count(built.editions, 'edition')}, {count(built.results, 'result')} "
        f"({built.read:,} read now), {len(built.problems):,} not read"
    )
    return EXIT_DONE


LIST = Command(
    description=(
        "Make a public list of a folder of signed archives: a static site without network, with dated editions. Every "
        "number is recomputed. An archive that cannot be read, is forged or is not signed costs its own line only."
    ),
    example=EXAMPLE,
    configure=_configure,
    execute=_execute,
    leaves=lambda arguments: "what was read is kept; the same command continues",
)
