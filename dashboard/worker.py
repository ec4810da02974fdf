"""The process that reads runs and renders their pages: `python -m dashboard.worker`.

Tasks come on standard input, one a line; each answer follows its length on standard output.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

from aiperf.clock import SystemClock
from aiperf.errors import AiperfError
from aiperf.run_directory.paths import RunPaths, open_run
from analysis.report.build import build_report
from analysis.report.state import read_now
from analysis.results.glance import status_at_a_glance
from analysis.results.status import run_status
from dashboard.work import Answer, Task

NICENESS = 5
"""The trainer on the same node comes first."""

LENGTH_BYTES = 8


def main() -> None:
    """Answer tasks until standard input ends."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    # The answers alone go to the original standard output.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin.buffer:
            for answer in answers(Task.model_validate_json(line)):
                data = answer.model_dump_json().encode()
                output.write(len(data).to_bytes(LENGTH_BYTES) + data)
                output.flush()


def answers(task: Task) -> Iterator[Answer]:
    """The answers to a task, the last without `more`; an error is one, too."""
    try:
        if task.run is None:
            yield _scripts()
        else:
            yield from _look(open_run(task.run), task)
    except (AiperfError, OSError) as error:
        yield Answer(error=str(error))
    except Exception as error:  # noqa: BLE001, RUF100  # a defect with one run must not end the others' pages
        yield Answer(error=f"the run cannot be shown: {type(error).__name__}: {error}")


def _look(paths: RunPaths, task: Task) -> Iterator[Answer]:
    now_ms = SystemClock().utc_ms()
    if (glance := status_at_a_glance(paths, now_ms)) is not None:
        yield Answer(status=glance, more=task.links is not None)
        if task.links is None:
            return
    data, state, holder = read_now(paths, now_ms)
    report = build_report(data, state)
    status = run_status(data, report, holder, now_ms)
    yield Answer(status=status, more=task.links is not None)
    if task.links is None:
        return
    from analysis.output.page.view import report_page  # noqa: PLC0415  # not needed for a list of runs

    yield Answer(status=status, page=report_page(data, report, task.links))


def _scripts() -> Answer:
    from analysis.output.page.embed import library  # noqa: PLC0415
    from analysis.output.page.links import page_script  # noqa: PLC0415

    return Answer(library=str(library()), script=page_script())


if __name__ == "__main__":
    main()
