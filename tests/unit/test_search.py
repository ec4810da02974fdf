"""Morphisms, streams, limits, distance, surrogate; the Bayesian strategy beyond its contract."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.cli.units import GIB
from aiperf.config.settings import load_config
from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Add, BatchNorm, Concat, Conv, Dense, Flatten, GlobalAveragePool, Input, ReLU
from aiperf.network.operations import count
from aiperf.seeds import fold_seed
from replica.search.demo.architectures import SearchDemo, random_history
from replica.search.distance import DistanceTable
from replica.search.lanes import ALL
from replica.search.observations import Observation, Observations
from replica.search.planner import Memory, limits_of
from replica.search.strategies.bayesian import BayesianStrategy
from replica.search.surrogate import Surrogate
from search_space.limits import growth_limits, training_memory
from search_space.morph_json import apply_all, morph_data, morph_from_data
from search_space.morphisms import (
    AddSkip,
    Deepen,
    EnlargeKernel,
    Widen,
    deepen_sites,
    kernel_sites,
    skip_sites,
    widths,
)
from search_space.resnet import resnet
from search_space.sampling import random_morph
from search_space.streams import streams

INITIAL = resnet(50, 32, 10)
LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)
POOL = random_history(INITIAL, LIMITS, 60, random.Random(1))


def test_deepen_inserts_a_block_between_a_relu_and_all_its_readers() -> None:
    child = Deepen("s2b1_relu").apply(INITIAL)
    assert len(child.nodes) == len(INITIAL.nodes) + 3
    assert child.by_name["deep1_conv"].inputs == ("s2b1_relu",)
    assert child.by_name["deep1_conv"].layer == Conv(256, kernel=(3, 3), tunable_kernel=True)
    assert child.by_name["s2b2_a"].inputs == ("deep1_relu",)
    assert child.by_name["s2b2_add"].inputs == ("deep1_relu", "s2b2_cbn")
    assert child.output_shape == INITIAL.output_shape
    assert child.hash != INITIAL.hash


def test_deepen_can_be_repeated_and_every_site_gives_another_child() -> None:
    sites = deepen_sites(INITIAL)
    assert len(sites) == 49
    assert len({Deepen(site).apply(INITIAL).hash for site in sites}) == 49
    assert "deep2_conv" in Deepen("deep1_relu").apply(Deepen("relu1").apply(INITIAL)).by_name


def test_streams_follow_channels_through_a_residual_stage() -> None:
    found = {stream.producers[0]: stream for stream in streams(INITIAL)}
    stage = found["s2b1_sc"]
    assert stage.channels == 256
    assert set(stage.producers) == {"s2b1_sc", "s2b1_c", "s2b2_c", "s2b3_c"}
    assert set(stage.consumers) == {"s2b2_a", "s2b3_a", "s3b1_sc", "s3b1_a"}
    assert {"s2b1_add", "s2b3_relu", "s2b2_cbn"} <= set(stage.members)
    assert found["s5b1_sc"].consumers[-1] == "fc"
    assert "fc" not in found, "the classes are not to be widened"


def test_widen_changes_all_convolutions_of_the_stream_and_no_other() -> None:
    child = Widen("s2b1_sc", 320).apply(INITIAL)
    changed = {n.name for n, old in zip(child.nodes, INITIAL.nodes, strict=True) if n.layer != old.layer}
    assert changed == {"s2b1_sc", "s2b1_c", "s2b2_c", "s2b3_c"}
    assert child.shapes["s2b3_relu"] == (8, 8, 320)
    assert widths(64) == (80, 96, 128)
    assert widths(4) == (8,)


def test_streams_through_a_concatenation_or_a_flattening_cannot_be_widened() -> None:
    nodes = (
        Node("in", Input(8, 8, 3)), Node("a", Conv(8), ("in",)), Node("b", Conv(8), ("in",)),
        Node("cat", Concat(), ("a", "b")), Node("c", Conv(8), ("cat",)), Node("flat", Flatten(), ("c",)),
        Node("fc", Dense(2), ("flat",)),
    )  # fmt: skip
    assert streams(Architecture(nodes)) == ()


def test_skips_match_shapes_with_a_strided_projection() -> None:
    child = AddSkip("relu1", "s4b2_relu").apply(INITIAL)
    assert child.by_name["skip1_conv"].layer == Conv(1024, kernel=(1, 1), stride=(8, 8))
    assert child.by_name["skip1_bn"].layer == BatchNorm(zero_scale=True)
    assert child.by_name["s4b2_relu"].inputs == ("skip1_add",)
    same = AddSkip("s2b1_relu", "s2b3_relu").apply(INITIAL)
    assert "skip1_conv" not in same.by_name
    assert same.by_name["skip1_add"].inputs == ("s2b3_add", "skip1_bn")
    assert len(list(skip_sites(INITIAL))) > 500


def test_enlarge_grows_kernels_up_to_seven() -> None:
    child = EnlargeKernel("s3b1_sc").apply(INITIAL)
    assert child.by_name["s3b1_sc"].layer == Conv(512, kernel=(3, 3), stride=(2, 2))
    assert "conv1" not in kernel_sites(INITIAL)
    grown = apply_all(INITIAL, [EnlargeKernel("s2b1_b")] * 2)
    assert "s2b1_b" not in kernel_sites(grown)


@pytest.mark.parametrize(
    "morph",
    [Deepen("conv1"), Deepen("fc_softmax"), Deepen("nowhere"), Widen("s2b1_sc", 256), Widen("s2b1_c", 512),
     Widen("nowhere", 8), AddSkip("s4b2_relu", "relu1"), AddSkip("relu1", "conv1"), AddSkip("relu1", "relu1"),
     EnlargeKernel("conv1"), EnlargeKernel("fc"), EnlargeKernel("nowhere")],
)  # fmt: skip
def test_impossible_morphs_are_refused(morph: Deepen | Widen | AddSkip | EnlargeKernel) -> None:
    with pytest.raises(ArchitectureError, match="cannot"):
        morph.apply(INITIAL)


def test_morphs_survive_their_data() -> None:
    for morph in (Deepen("a"), Widen("b", 16), AddSkip("c", "d"), EnlargeKernel("e")):
        assert morph_from_data(json.loads(json.dumps(morph_data(morph)))) == morph
    wrong: tuple[dict[str, str | int], ...] = (
        {"kind": "Shrink"},
        {},
        {"kind": "Deepen"},
        {"kind": "Deepen", "after": "a", "more": 1},
    )
    for broken in wrong:
        with pytest.raises(ArchitectureError, match="morph"):
            morph_from_data(broken)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_random_chains_give_valid_new_architectures_that_only_grow(seed: int) -> None:
    rng, chain = random.Random(seed), [INITIAL]
    for _ in range(10):
        chain.append(random_morph(chain[-1], rng)[1])
    assert len({architecture.hash for architecture in chain}) == 11
    totals = [count(architecture).operations.total for architecture in chain]
    assert all(later > earlier for earlier, later in pairwise(totals))
    assert all(architecture.output_shape == (10,) for architecture in chain)


def test_an_architecture_without_any_morph_is_an_error() -> None:
    bare = Architecture((Node("in", Input(4, 4, 3)), Node("gap", GlobalAveragePool(), ("in",))))
    with pytest.raises(ArchitectureError, match="no morph of architecture"):
        random_morph(bare, random.Random(0))


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


def plain_edit_distance(one: list[str], other: list[str]) -> int:
    """Levenshtein with costs of 1, as in every textbook."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def words(architecture: Architecture) -> list[str]:
    return [str(node.layer) for node in architecture.nodes if node.layer.kind in ("conv", "dense")]


def test_the_distance_of_a_morph_is_what_it_changes() -> None:
    table = DistanceTable()
    deeper, wider = Deepen("relu1").apply(INITIAL), Widen("s2b1_a", 128).apply(INITIAL)
    larger, skipped = EnlargeKernel("s2b1_b").apply(INITIAL), AddSkip("s2b1_relu", "s2b3_relu").apply(INITIAL)
    found = table.distances(INITIAL, [INITIAL, deeper, wider, larger, skipped])
    assert found[0] == 0.0
    assert 1.0 <= found[1] < 2.5, "an inserted layer, and skip connections one layer later"
    assert found[2] == pytest.approx(1 - 64 / 128)
    assert found[3] == pytest.approx(1 - 3 / 5)
    assert found[4] == pytest.approx(1.0), "one more skip connection"


def test_the_distance_is_a_metric_on_a_history() -> None:
    table = DistanceTable()
    matrix = np.stack([DistanceTable().distances(one, POOL[:20]) for one in POOL[:20]])
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(matrix[3], table.distances(POOL[3], POOL[:20])), "cached and uncached alike"
    assert np.all(np.diag(matrix) == 0)
    assert np.all(matrix[~np.eye(20, dtype=bool)] > 0)
    assert np.all(matrix[:, None, :] <= matrix[:, :, None] + matrix[None, :, :] + 1e-8)


def test_the_vectorised_edit_distance_is_the_textbooks_where_costs_are_equal() -> None:
    # Tripling a width or more and changing a kernel costs 1, as in the textbook; insertions do so
    # always.
    for one, other in ((INITIAL, resnet(101, 32, 10)), (resnet(101, 32, 10), resnet(152, 32, 10))):
        expected = plain_edit_distance(words(one), words(other))
        table = DistanceTable()
        both = table.distances(one, [other, one, other])[0]
        assert expected <= both, "skip connections come on top"
        assert table.distances(other, [one])[0] == both


def observations(values: list[float], architectures: list[Architecture] | None = None) -> tuple[Observation, ...]:
    return tuple(map(Observation, architectures or POOL, values))


def test_the_kernel_is_positive_semi_definite_and_the_surrogate_interpolates() -> None:
    rng = random.Random(4)
    data = observations([rng.random() for _ in range(40)])
    surrogate = Surrogate(data, DistanceTable())
    covariance = surrogate.covariance()
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert covariance.shape == (40, 40), "no observation is dropped"


def test_duplicates_and_equal_accuracies_do_no_harm() -> None:
    same = observations([0.5] * 6, [INITIAL] * 3 + POOL[1:4])
    bounds = Surrogate(same, DistanceTable()).upper_confidence_bounds([INITIAL, POOL[5]])
    assert np.all(np.isfinite(bounds))
    assert bounds[1] > bounds[0], "the unknown has the higher bound"


def propose(known: Observations, seed: int = 0) -> str:
    return BayesianStrategy(INITIAL, LIMITS).propose(known, random.Random(seed), ALL).architecture.hash


def test_accuracies_change_the_proposals() -> None:
    values = [random.Random(n).random() for n in range(30)]
    rising, falling = Observations(observations(values)), Observations(observations([1 - value for value in values]))
    assert [propose(rising, seed) for seed in range(3)] != [propose(falling, seed) for seed in range(3)]


def test_a_pending_trial_lowers_the_bound_around_it() -> None:
    data = observations([0.4, 0.6, 0.5])
    free, near = DistanceTable(), POOL[20]
    alone = Surrogate(data, free).upper_confidence_bounds([near])[0]
    lied = Surrogate((*data, Observation(near, 0.5)), free).upper_confidence_bounds([near])[0]
    assert lied < alone


def test_the_search_beats_random_morphing() -> None:
    def best(strategy: str, seed: int) -> float:
        return list(SearchDemo("depth", strategy, seed=seed).steps(10))[-1].best

    gains = [best("bayesian", seed) - best("random", seed) for seed in range(3)]
    assert sorted(gains)[1] > 0.02


def test_seeds_are_folded_from_every_part() -> None:
    parts = [(1, "search", 1, 0), (2, "search", 1, 0), (1, "train", 1, 0), (1, "search", 2, 0), (1, "search", 1, 1)]
    seeds = [fold_seed(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert seeds == [fold_seed(*part) for part in parts]
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_additions_of_a_layer_with_itself_survive_widening() -> None:
    nodes = (
        Node("in", Input(6, 6, 3)), Node("a", Conv(8), ("in",)), Node("sum", Add(), ("a", "a")),
        Node("relu", ReLU(), ("sum",)), Node("b", Conv(8), ("relu",)), Node("sum2", Add(), ("b", "relu")),
        Node("gap", GlobalAveragePool(), ("sum2",)), Node("fc", Dense(2), ("gap",)),
    )  # fmt: skip
    (stream,) = streams(Architecture(nodes))
    assert (stream.producers, stream.consumers) == (("a", "b"), ("b", "fc"))
