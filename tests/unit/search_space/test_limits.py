"""Limits of growth."""

from aiperf.cli.units import GIB
from aiperf.config.settings import load_config
from replica.search.planner import Memory, limits_of
from search_space.limits import growth_limits, training_memory
from search_space.morphisms import (
    Deepen,
    EnlargeKernel,
)
from search_space.resnet import resnet

INITIAL = resnet(50, 32, 10)


def test_limits_follow_from_the_configuration() -> None:
    config = load_config(overrides={"run.dataset": "digits", "search.max_growth": 1.01})
    limits = limits_of(config, INITIAL, Memory())
    assert limits.refusal(INITIAL) is None
    assert "parameters; the limit" in (limits.refusal(Deepen("s5b1_relu").apply(INITIAL)) or "")
    assert "operations an image; the limit" in (limits.refusal(EnlargeKernel("s2b1_b").apply(INITIAL)) or "")
    shallow = growth_limits(INITIAL, 1.0, None, 64, 4)
    assert "layers with weights" in (
        type(shallow)(10**12, 10**15, INITIAL.depth, None, 64, 4).refusal(Deepen("relu1").apply(INITIAL)) or ""
    )
    small = load_config(overrides={"run.dataset": "digits", "replica.accelerator_memory_gib": 0.25})
    assert limits_of(small, INITIAL, Memory(10**15)).memory_bytes == GIB // 4
    assert "bytes to train with batch 64" in (limits_of(small, INITIAL, Memory()).refusal(INITIAL) or "")
    assert training_memory(INITIAL, 64, 4) > 12 * INITIAL.parameter_count
