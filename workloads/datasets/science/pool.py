"""Work on many files, each in a process: HDF5's library may end the process on a damaged file."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from aiperf.processes import spawned
from workloads.datasets.prepare import Progress

Job = TypeVar("Job")
Result = TypeVar("Result")


def each(
    work: Callable[[Job], Result], jobs: Sequence[Job], workers: int, report: Progress, lost: Callable[[Job], Result]
) -> list[Result]:
    """Do all jobs; give their results in order. `lost` gives the result of one whose process died.

    A process that dies takes down its pool: jobs without a result are tried once more, each alone,
    so that only the damaged file has none. With 0 workers all is done in this process.
    """
    if workers == 0:
        return [work(job) for job in jobs]
    results: dict[int, Result] = {}
    for together in (workers, 1):
        left = [number for number in range(len(jobs)) if number not in results]
        # One pool for each in the second round: a pool whose process died takes no further job.
        for some in [left] if together > 1 else [[number] for number in left]:
            _some(work, jobs, some, together, results, lambda: report(len(results), len(jobs)))
    return [results[number] if number in results else lost(jobs[number]) for number in range(len(jobs))]


def _some(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    numbers: Sequence[int],
    workers: int,
    results: dict[int, Result],
    report: Callable[[], None],
) -> None:
    if not numbers:
        return
    with spawned(min(workers, len(numbers))) as pool:
        futures: dict[Future[Result], int] = {}
        try:
            futures = {pool.submit(work, jobs[number]): number for number in numbers}
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                report()
        except BrokenProcessPool:
            return
