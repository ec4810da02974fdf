"""The verdicts of the campaign of planted slow replicas, on replicas that are named by hand."""

import pytest

from analysis.report.estimates import EffectPart
from tests.faults.planted.slow import Round


def named(replica: int, phase: str) -> EffectPart:
    return EffectPart(
        measure="work",
        replica=replica,
        node=f"n{replica}",
        observations=1,
        effect=-0.4,
        low=-0.5,
        high=-0.3,
        slow=True,
        phase=phase,
        evidence="what was seen",
    )


@pytest.mark.parametrize(
    ("played", "slow", "verdict"),
    [
        (Round("quota", 3), [named(3, "quota")], "right"),
        (Round("quota", 3), [named(3, "train")], "missed"),
        (Round("quota", 3), [], "missed"),
        (Round("input", 3), [named(3, "input"), named(3, "idle")], "right"),
        (Round("input", 3), [named(4, "input")], "accused"),
        (Round("device", 3), [named(3, "clocks"), named(4, "train")], "accused"),
        (Round("even", 3), [], "right"),
        (Round("even", 3), [named(3, "train")], "accused"),
    ],
)
def test_only_the_planted_replica_by_its_cause_is_right(played: Round, slow: list[EffectPart], verdict: str) -> None:
    assert played.verdict(slow) == verdict
