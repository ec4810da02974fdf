"""Morphisms: blocks, widths, skips, kernels."""

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Add, BatchNorm, Conv, Dense, GlobalAveragePool, Input, ReLU
from aiperf.network.operations import count
from search_space.morphisms import (
    AddSkip,
    Deepen,
    EnlargeKernel,
    Widen,
    apply_all,
    deepen_sites,
    kernel_sites,
    morph_data,
    morph_from_data,
    widths,
)
from search_space.resnet import resnet
from search_space.sampling import random_morph
from search_space.streams import streams

INITIAL = resnet(50, 32, 10)


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


def test_widen_changes_all_convolutions_of_the_stream_and_no_other() -> None:
    child = Widen("s2b1_sc", 320).apply(INITIAL)
    changed = {n.name for n, old in zip(child.nodes, INITIAL.nodes, strict=True) if n.layer != old.layer}
    assert changed == {"s2b1_sc", "s2b1_c", "s2b2_c", "s2b3_c"}
    assert child.shapes["s2b3_relu"] == (8, 8, 320)
    assert widths(64) == (80, 96, 128)
    assert widths(4) == (8,)


def test_skips_match_shapes_with_a_strided_projection() -> None:
    child = AddSkip("relu1", "s4b2_relu").apply(INITIAL)
    assert child.by_name["skip1_conv"].layer == Conv(1024, kernel=(1, 1), stride=(8, 8))
    assert child.by_name["skip1_bn"].layer == BatchNorm(zero_scale=True)
    assert child.by_name["s4b2_relu"].inputs == ("skip1_add",)
    same = AddSkip("s2b1_relu", "s2b3_relu").apply(INITIAL)
    assert "skip1_conv" not in same.by_name
    assert same.by_name["skip1_add"].inputs == ("s2b3_add", "skip1_bn")


def test_enlarge_grows_kernels_up_to_seven() -> None:
    child = EnlargeKernel("s3b1_sc").apply(INITIAL)
    assert child.by_name["s3b1_sc"].layer == Conv(512, kernel=(3, 3), stride=(2, 2))
    assert "conv1" not in kernel_sites(INITIAL)
    grown = apply_all(INITIAL, [EnlargeKernel("s2b1_b")] * 2)
    assert "s2b1_b" not in kernel_sites(grown)


@pytest.mark.parametrize(
    "morph",
    [
        Deepen("conv1"),
        Deepen("fc_softmax"),
        Deepen("nowhere"),
        Widen("s2b1_sc", 256),
        Widen("s2b1_c", 512),
        Widen("nowhere", 8),
        AddSkip("s4b2_relu", "relu1"),
        AddSkip("relu1", "conv1"),
        AddSkip("relu1", "relu1"),
        EnlargeKernel("conv1"),
        EnlargeKernel("fc"),
        EnlargeKernel("nowhere"),
    ],
)
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


def test_additions_of_a_layer_with_itself_survive_widening() -> None:
    nodes = (
        Node("in", Input(6, 6, 3)),
        Node("a", Conv(8), ("in",)),
        Node("sum", Add(), ("a", "a")),
        Node("relu", ReLU(), ("sum",)),
        Node("b", Conv(8), ("relu",)),
        Node("sum2", Add(), ("b", "relu")),
        Node("gap", GlobalAveragePool(), ("sum2",)),
        Node("fc", Dense(2), ("gap",)),
    )
    (stream,) = streams(Architecture(nodes))
    assert (stream.producers, stream.consumers) == (("a", "b"), ("b", "fc"))
