"""The verb `aiperf audit`."""

import argparse
import json
from collections.abc import Collection
from pathlib import Path

from aiperf.cli.command import Command, add_format, add_run, whole_number
from aiperf.cli.console import open_console
from aiperf.cli.lines import say_json, warn
from aiperf.cli.tables import print_line
from aiperf.errors import EXIT_DONE, EXIT_FAILED
from aiperf.run_directory.paths import RunPaths, open_run
from analysis.results.signatures import stated_head
from analysis.results.source import opened_run
from analysis.results.submission_package import is_archive
from referee.audit.procedure import DRAWS, STEPS, AuditOrder, audit


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser, metavar="DIR|ARCHIVE")
    parser.add_argument("--nonce", type=_nonce, required=True, help="the referee's word, chosen after the submission")
    parser.add_argument("--draws", type=whole_number(1), default=DRAWS, help="epochs to draw (default: %(default)s)")
    parser.add_argument("--steps", type=whole_number(2), default=STEPS, help="steps to repeat (default: %(default)s)")
    parser.add_argument(
        "--retrain",
        type=whole_number(1),
        nargs="?",
        const=1,
        default=0,
        metavar="EPOCHS",
        help="train the first epochs of drawn trials in full, as many as this (default: 1)",
    )
    parser.add_argument("--data-dir", type=Path, metavar="FOLDER", help="the data set here (default: as in the run)")
    parser.add_argument(
        "--statement",
        type=Path,
        metavar="FILE",
        help="statement of the submission, from before the nonce: its head must be that of the run",
    )
    add_format(parser)


def _nonce(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a nonce is a word that nobody could know before; it is empty")
    return text


def _audit(arguments: argparse.Namespace) -> int:
    order = AuditOrder(
        arguments.nonce,
        arguments.draws,
        arguments.steps,
        arguments.retrain,
        arguments.data_dir,
        stated_head(arguments.statement) if arguments.statement is not None else None,
    )
    if is_archive(arguments.run):
        _report(
            "an archive has no weights to evaluate, so this audit can end as incomplete, but not as passed; "
            "audit the run directory for the whole"
        )
    with opened_run(arguments.run) as folder:
        result = audit(open_run(folder), order, _replay, _report)
    if arguments.format == "json":
        say_json(json.dumps(result.document(), indent=2))
    else:
        console = open_console()
        console.print(result.table())
        for line in result.closing_lines():
            print_line(console, line)
    return EXIT_DONE if result.passed else EXIT_FAILED


def _replay(paths: RunPaths, trials: Collection[int]) -> dict[int, str]:
    """The differences between the recorded plans of trials and the same plans made again."""
    from referee.replay import replay  # noqa: PLC0415  (loads the search)

    found = dict.fromkeys(trials, "")
    for difference in replay(paths, None, trials).differences:
        found[difference.trial] = f"{found[difference.trial]}; {difference}".removeprefix("; ")
    return found


def _report(line: str) -> None:
    warn(f"aiperf: {line}")


AUDIT = Command(
    description="Do drawn parts of a run's work again: first steps of trials, evaluation of kept weights; compare.",
    example="aiperf audit runs/first --draws 8 --nonce 'lottery numbers of the day'",
    configure=_configure,
    execute=_audit,
)
