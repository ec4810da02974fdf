"""`aiperf check`: a result against every rule, and its plans made again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from aiperf.cli.command import Command, add_format, add_run, whole_number
from aiperf.cli.console import PlainConsole, open_console
from aiperf.cli.lines import say_json
from aiperf.cli.tables import make_table, print_line
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError
from aiperf.run_directory.paths import RunPaths
from analysis.reading.nodes import read_system
from analysis.results.heads import read_arrivals
from analysis.results.recomputed_report import Compliance, check_result
from analysis.results.signatures import SignatureResult, verify_signature
from analysis.results.source import opened_run
from analysis.results.verify import notes_of
from analysis.verbs.results import add_heads

if TYPE_CHECKING:
    from referee.replay import ReplayResult

SAMPLE = 8
"""Plans that are replayed unless another number is asked for."""

SEARCH_PACKAGES = ("numpy", "scipy", "scikit-learn", "hyperopt")
"""Packages whose versions a plan depends on."""

SHOWN = 20
"""Upper limit for the differences and damages in a table; JSON has all."""


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "result", "DIR|ARCHIVE|report.json")
    parser.add_argument(
        "--replay",
        type=plans_to_replay,
        default=SAMPLE,
        metavar="N|all",
        help=f"make this many plans again, drawn by the last records, and compare (default: {SAMPLE}; 0: none)",
    )
    parser.add_argument(
        "--signers",
        type=Path,
        metavar="FILE",
        help="verify the signature of an archive with this file of allowed signers, as ssh-keygen takes it",
    )
    add_heads(parser)
    add_format(parser)


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add `--replay` to a verb that checks many runs."""
    parser.add_argument(
        "--replay",
        type=plans_to_replay,
        default=SAMPLE,
        metavar="N|all",
        help=f"make this many plans of each official run again (default: {SAMPLE}; 0: none)",
    )


def plans_to_replay(text: str) -> int | None:
    """The value of --replay; None: all."""
    return None if text == "all" else whole_number(0)(text)


def _check(arguments: argparse.Namespace) -> int:
    heads = read_arrivals(arguments.heads) if arguments.heads else None
    with opened_run(arguments.result) as folder:
        compliance = check_result(folder, heads)
        replayed = _replay(folder, arguments.replay) if compliance.recomputed else None
        signature = verify_signature(folder, arguments.signers, compliance.report) if arguments.signers else None
        software = list(_other_versions(folder)) if replayed is not None and replayed.checked else []
        notes = notes_of(RunPaths(folder)) if compliance.recomputed else []
    good = compliance.recomputed and compliance.valid and not compliance.damages
    good = good and (replayed is None or not replayed.differences) and (signature is None or signature.valid)
    if arguments.format == "json":
        document = _document(compliance, replayed, good)
        if signature is not None:
            document["signature"] = asdict(signature)
        say_json(json.dumps(document, indent=2))
    else:
        _print(compliance, replayed, [*notes, *software, *_signature_lines(signature)], good)
    return EXIT_DONE if good else EXIT_FAILED


def _replay(folder: Path, most: int | None) -> ReplayResult | None:
    """The replay of some plans of a run; None if none is asked for or none was recorded.

    Raises EnvironmentNotReadyError without the libraries of the search.
    """
    # Only chained records name the cursor that a plan is made again from. This comes first, since
    # loading the search takes longer than checking a small run.
    if most == 0 or not any(b'"previous":' in file.read_bytes() for file in RunPaths(folder).history_files("replica")):
        return None
    try:
        from referee.replay import replay  # noqa: PLC0415
    except ImportError as error:
        raise EnvironmentNotReadyError(
            [
                f"the search cannot be loaded ({error}), so no plan can be replayed; install aiperf-hpc with its "
                "dependencies, or leave the replay out with --replay 0"
            ]
        ) from error
    return replay(RunPaths(folder), most)


def _other_versions(folder: Path) -> Iterator[str]:
    """Packages of which a node of the run had another version than this machine has."""
    recorded: dict[tuple[str, str], list[str]] = {}
    for replica, node in read_system(RunPaths(folder)).items():
        for package in SEARCH_PACKAGES:
            version = node.model_dump().get(package)
            if version is not None and version != metadata.version(package):
                recorded.setdefault((package, str(version)), []).append(replica)
    for (package, version), replicas in sorted(recorded.items()):
        here = metadata.version(package)
        yield (
            f"plans are equal only with the same software: {package} {version} on replicas "
            f"{', '.join(replicas)[:60]}, {here} here"
        )


def _signature_lines(signature: SignatureResult | None) -> list[str]:
    return [] if signature is None else [f"signature: {'valid' if signature.valid else 'INVALID'}; {signature.reason}"]


def _verdict(compliance: Compliance, good: bool) -> str:
    if not compliance.recomputed and compliance.valid:
        return "unverified"
    if compliance.report.verdict == "running":
        return "running: the run has no verdict yet"
    return compliance.report.verdict if good else "invalid"


def _document(compliance: Compliance, replayed: ReplayResult | None, good: bool) -> dict[str, object]:
    report = compliance.report
    found = () if replayed is None else replayed.differences
    return {
        "verdict": _verdict(compliance, good),
        "recomputed": compliance.recomputed,
        "differences": [*compliance.differences, *map(str, found)],
        "details": list(compliance.details),
        "rules": [rule.model_dump() for rule in report.rules],
        "score_ops": report.score_ops if good else None,
        "regulated_score_ops": report.regulated_score_ops if good else None,
        "error": report.error,
        "notices": list(report.notices),
        "damages": [asdict(damage) for damage in compliance.damages],
        "replayed": {"checked": replayed.checked, "equal": replayed.equal} if replayed else {"checked": 0, "equal": 0},
        "official": compliance.official and good,
        "dated": compliance.dating.dated,
        "dating": compliance.dating.reason,
    }


def _print(compliance: Compliance, replayed: ReplayResult | None, notes: list[str], good: bool) -> None:
    console, report = open_console(), compliance.report
    table = make_table(f"Rule set {report.rules_version}", "rule", "result", "found", "required")
    for rule in report.rules:
        table.add_row(rule.rule, "PASSED" if rule.passed else "FAILED", rule.found[:300], rule.required)
    console.print(table)
    lines = [f"not as recorded: {difference}" for difference in compliance.differences]
    if compliance.details:
        lines.append(f"in report.json not as the records give it, and not used: {', '.join(compliance.details)}")
    lines += [f"notice: {notice}" for notice in report.notices]
    lines += _shown("damaged: ", [str(damage) for damage in compliance.damages])
    if not compliance.recomputed:
        lines.append("not recomputed: a report.json has no records; check its run directory or archive")
    else:
        lines.append(_replay_line(replayed))
    for line in lines:
        print_line(console, line)
    if replayed is not None and replayed.differences:
        _print_differences(console, replayed)
    for line in (*notes, *_last_lines(compliance, good)):
        print_line(console, line)


def _last_lines(compliance: Compliance, good: bool) -> list[str]:
    """Times, verdict, and the line of the result as this check leaves it."""
    verdict, line = _verdict(compliance, good), compliance.report.final_line
    if verdict in ("invalid", "unverified"):
        # Signature, differences and damages are no part of the report, and nobody has recomputed a
        # report without records.
        status = "FAILED" if verdict == "invalid" else "UNVERIFIED"
        line = compliance.report.model_copy(
            update={"verdict": verdict, "status": status, "score_ops": None, "regulated_score_ops": None}
        ).final_line
    return [f"times: {compliance.dating.words}", f"verdict: {verdict}", line]


def _shown(prefix: str, found: list[str]) -> list[str]:
    more = [f"{prefix}{len(found) - SHOWN} more; --format json has all"] if len(found) > SHOWN else []
    return [f"{prefix}{text}" for text in found[:SHOWN]] + more


def _replay_line(replayed: ReplayResult | None) -> str:
    if replayed is None or not (replayed.replayable or replayed.checked):
        return "replayed: none; no plan is recorded with a chain, or none was asked for"
    drawn = "" if replayed.checked >= replayed.replayable else f", drawn by the head {replayed.head}"
    left = f"; {replayed.unchained} trials have no chain and cannot be replayed" if replayed.unchained else ""
    return f"replayed: {replayed.checked} of {replayed.replayable} plans{drawn}; equal: {replayed.equal}{left}"


def _print_differences(console: PlainConsole, replayed: ReplayResult) -> None:
    table = make_table("Not as replayed", "trial", "field", "found", "expected")
    for found in replayed.differences[:SHOWN]:
        table.add_row(str(found.trial), found.field, found.recorded[:300], found.replayed[:300])
    console.print(table)
    if len(replayed.differences) > SHOWN:
        print_line(console, f"{len(replayed.differences) - SHOWN} more differences; --format json has all")


CHECK = Command(
    description=(
        "Check a run, an archive of aiperf export or a report against every rule, and replay plans of its search; "
        "the exit code is 1 if it is invalid or unverified."
    ),
    example="aiperf check runs/first --replay all",
    configure=_configure,
    execute=_check,
)
