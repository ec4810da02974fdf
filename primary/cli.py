"""The verbs of the primary: `aiperf run` and `aiperf resume`."""

import argparse
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiperf.cli.command import Command, add_format, add_no_page, report_words
from aiperf.cli.lines import warn
from aiperf.cli.run_options import add_run_options, read_run_options
from aiperf.clock import Clock, SystemClock
from aiperf.config.settings import RunConfig
from aiperf.errors import EXIT_DONE, EXIT_FAILED, EnvironmentNotReadyError, UsageError
from aiperf.files import write_atomically
from aiperf.run_directory.manifest import Manifest, Screened, read_manifest, version_note, write_manifest
from aiperf.run_directory.ownership import check_hands
from aiperf.run_directory.paths import RunPaths, open_run
from aiperf.screening.evidence import screened_by
from aiperf.screening.outcome import NAMES
from aiperf.storage.error_texts import why_not_written
from aiperf.storage.patience import PATIENCE, with_patience
from aiperf.untrusted.reading import reason_of
from primary import preflight
from primary.background.detach import detach
from primary.background.outputs import ignore_hangups, replace_dead_outputs
from primary.doctor.cli import examine
from primary.managers import MANAGERS, EndReason, ManagedRun
from primary.resumption import START_PATIENCE_S
from primary.work.data import with_data
from slurm.hostlists import without


def _configure(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument("--output", type=Path, metavar="DIR", help="run directory (default: runs/NAME-TIME)")
    parser.add_argument(
        "--or-resume",
        action="store_true",
        help="resume the run that DIR holds, if it holds one: for jobs that are repeated",
    )
    parser.add_argument(
        "--screen",
        type=Path,
        metavar="DIR",
        help="folder of an aiperf screen of at most a day ago, for the run's record",
    )
    _add_detach(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="start no run: print what aiperf doctor finds without its probe"
    )
    add_no_page(parser)
    add_format(parser)


def _execute(arguments: argparse.Namespace) -> int:
    if arguments.dry_run:
        arguments.report = False
        return examine(arguments, steps=0)
    ignore_hangups()
    if arguments.or_resume and arguments.output is None:
        raise UsageError("--or-resume: name the directory of the run with --output DIR")
    if arguments.or_resume and RunPaths(arguments.output).run.exists():
        warn(f"{arguments.output} holds a run, which is resumed with its own settings")
        arguments.directory, arguments.new_clock = arguments.output, False
        return _resume(arguments)
    config, clock = read_run_options(arguments), SystemClock()
    if arguments.output is None:
        arguments.output = preflight.default_output(config, clock)
    patience_s = min(START_PATIENCE_S, config.storage.patience)
    with PATIENCE.set(patience_s):
        with_patience(partial(preflight.check, config, arguments.output), arguments.output)
    if early := preflight.check_end_of_job(config):
        warn(early)
    screened = screened_by(arguments.screen, clock.utc_ms()) if arguments.screen is not None else None
    warn(*_bad_nodes(screened, arguments.screen, config))
    config = with_data(config)
    paths = RunPaths(arguments.output)
    try:
        with PATIENCE.set(patience_s):
            paths.create()
            if config.search.space is not None:
                write_atomically(paths.space, Path(config.search.space).read_bytes())
            write_manifest(paths, config, screened=screened)
    except OSError as error:
        found = f"--output {why_not_written(arguments.output, error)}, or name a directory elsewhere"
        raise EnvironmentNotReadyError([found]) from error
    return _conduct(arguments, config, paths, clock, lambda run: run.begin())


def _bad_nodes(screened: Screened | None, folder: Path, config: RunConfig) -> list[str]:
    """A warning for each bad node of the screening that the run does not leave out."""
    left = without([bad.names[0] for bad in screened.bad if bad.names], config.run.exclude) if screened else ()
    if screened is None or not left:
        return []
    reasons = {bad.names[0]: bad.reason for bad in screened.bad if bad.names}
    advice = f"to leave them out: --exclude {shlex.quote(str(folder / NAMES))}"
    return [*(f"WARNING: {name} was bad in the screening: {reasons[name]}" for name in left), advice]


def _resume(arguments: argparse.Namespace) -> int:
    ignore_hangups()
    paths, manifest = _open(arguments.directory)
    if note := version_note(manifest):
        warn(note)
    return _conduct(arguments, manifest.config, paths, SystemClock(), lambda run: run.resume(arguments.new_clock))


def _open(directory: Path) -> tuple[RunPaths, Manifest]:
    """A run of ours and its manifest, from storage that may refuse for a while.

    Raises EnvironmentNotReadyError if it refuses for longer, and RunDirectoryError.
    """
    try:
        with PATIENCE.set(START_PATIENCE_S):
            paths = open_run(directory)
            with_patience(lambda: check_hands(paths.root), paths.root)
            with_patience(lambda: paths.run.open("rb").close(), paths.run)
            return paths, read_manifest(paths)
    except OSError as error:
        found = f"{directory}/run.json: cannot be read: {reason_of(error)}; resume the run when it can be"
        raise EnvironmentNotReadyError([found]) from error


def _conduct(
    arguments: argparse.Namespace,
    config: RunConfig,
    paths: RunPaths,
    clock: Clock,
    action: Callable[[ManagedRun], EndReason],
) -> int:
    if arguments.detach:
        code = detach(paths, clock, arguments.format)
        if code is not None:
            arguments.report = False
            return code
    try:
        reason = action(MANAGERS.load(config.run.manager)(config, paths, clock))
    finally:
        replace_dead_outputs(paths.run_output)
    return exit_code(reason)


def exit_code(reason: str) -> int:
    """The exit code of a run that has ended for a reason: 0 if it did what was asked."""
    return EXIT_DONE if reason in ("deadline", "completed") else EXIT_FAILED


def _add_detach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detach", action="store_true", help="run in the background; return when the run has started")
    parser.set_defaults(report=True)  # False in the process that has only started the run


def _report(arguments: argparse.Namespace, directory: Path) -> list[str]:
    return report_words(arguments, directory) if arguments.report else []


RUN = Command(
    description="Start a timed run, with the primary here and replicas through the launcher; then print the report.",
    example="aiperf run --dataset digits --replicas 2 --duration 5m --output runs/first",
    configure=_configure,
    execute=_execute,
    follow_up=lambda arguments: _report(arguments, arguments.output),
)


def _configure_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the interrupted run")
    _add_detach(parser)
    parser.add_argument(
        "--new-clock",
        action="store_true",
        help="restart the clock: earlier work does not count, the result is unofficial",
    )
    add_no_page(parser)
    add_format(parser)


RESUME = Command(
    description="Resume an interrupted run for the time that is left of it; then print the report.",
    example="aiperf resume runs/first",
    configure=_configure_resume,
    execute=_resume,
    follow_up=lambda arguments: _report(arguments, arguments.directory),
)
