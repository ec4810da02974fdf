"""Forgeries of official and simulated runs: each is found, and none has a rank.

The rows of the table are classes of forgery (docs/trust.md):

1. A simulated run passed off as a training, of other data or duration: `claims`.
2. Images, epochs and numbers of epochs: `claims`.
3. Replicas and trials that were not: `claims`.
4. Last records cut off: `claims`, and a failure in test_results.
5. Records and files removed: `claims`, `files`.
6. A forged epoch before the true one: `claims`.
7. Times: `claims`.
8. Architectures and hyperparameters: `claims`.
9. Devices and their samples: `files`.
10. Reports without records: test_results.
11. One run ranked more than once: test_results.
12. Images of another data set: `files`.
13. Synthetic images passed off as the data set: `files`.
14. A planted checkpoint or candidate is not used: test_resumptions,
    tests/unit/replica/trainer/test_checkpoints.py, tests/unit/replica/trainer/test_orders.py,
    tests/contract/trainer/test_trainers.py and tests/unit/replica/search/test_candidates.py.
15. A clock that is slow or was set back, times divided by a number: test_results; the audit finds
    them by the pace of its repetitions.
16. A patched trainer: tests/integration/verbs/test_audit.py; invented trainings: test_results,
    test_audited; invented epochs and steps: tests/unit/referee/test_breaking_off.py.
17. Evidence, witnesses and chain themselves: `files`.
18. Submissions made from those of others, releases and names of others: test_competitors.
19. Trainings let fail, and free settings: `claims`.
20. Other numbers in a stored report: tests/integration/reports/test_recomputed_report.py.
21. Kept weights that were trained on validation images, or are others than they are said to be, and
    draws that were chosen: test_audited.
22. Losses of replicas that were removed: test_results. Waits and all-reduces longer than the
    training, right answers of training: `claims`, tests/unit/referee/test_breaking_off.py. Groups
    that come back too often, or with more than their share: tests/unit/analysis/hybrid.
23. Measures of scientific workloads that cannot be, and copies of such runs:
    tests/unit/analysis/science.
24. Meters that show less than the sensors inside of the nodes: tests/unit/analysis/energy.
25. Names of others in a list, links and pipes next to archives: tests/integration/referee/listing.
"""

import shutil
from pathlib import Path

import pytest

from aiperf.run_directory.paths import RunPaths
from analysis.results.ranking import rank
from analysis.results.source import RunResult, try_result
from referee.check import SAMPLE
from referee.replay import replay
from tests.forgeries.claims import CLAIMS
from tests.forgeries.files import OTHERS
from tests.forgeries.table import Forgery

FORGERIES = {f"{forgery.row}: {forgery.name}": forgery for forgery in [*CLAIMS, *OTHERS]}


def found_in(result: RunResult) -> set[str]:
    """The words of what is found in a run."""
    damages = {f"{damage.kind} {Path(damage.file).stem}" for damage in result.damages}
    return damages | {f"rule {violation.rule}" for violation in result.report.violations}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_and_has_no_rank(
    name: str, bases: dict[str, Path], honest: RunResult, tmp_path: Path
) -> None:
    forgery: Forgery = FORGERIES[name]
    root = shutil.copytree(bases[forgery.base], tmp_path / "run")
    forgery.forge(RunPaths(root))
    result = try_result(root, plans_that_differ)
    assert isinstance(result, RunResult), result
    found = found_in(result)
    if forgery.replayed:
        # All plans: drawn ones follow the run's hashes, and these the program's source. They may
        # be first architectures alone, which every strategy proposes.
        found |= {f"replay {difference.field}" for difference in replay(RunPaths(root), None).differences}
    assert set(forgery.found) <= found, "\n".join([*sorted(found), *map(str, result.damages[:20])])
    assert result.status != "official"
    (first, *others) = rank([result, honest], "score").rows
    assert (first.origin, first.rank) == (str(honest.origin), 1)
    assert all(row.rank is None for row in others)


def plans_that_differ(paths: RunPaths) -> list[str]:
    """The fields that a replay of plans gives in another way."""
    return [f"replay {difference.field}" for difference in replay(paths, SAMPLE).differences]
