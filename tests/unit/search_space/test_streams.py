"""Tensors that must have one width."""

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Concat, Conv, Dense, Flatten, Input
from search_space.morphisms import AddSkip, Deepen, apply_all
from search_space.resnet import resnet
from search_space.streams import stream_of, streams

INITIAL = resnet(50, 32, 10)


def test_streams_follow_channels_through_a_residual_stage() -> None:
    found = {stream.producers[0]: stream for stream in streams(INITIAL)}
    stage = found["s2b1_sc"]
    assert stage.channels == 256
    assert set(stage.producers) == {"s2b1_sc", "s2b1_c", "s2b2_c", "s2b3_c"}
    assert set(stage.consumers) == {"s2b2_a", "s2b3_a", "s3b1_sc", "s3b1_a"}
    assert {"s2b1_add", "s2b3_relu", "s2b2_cbn"} <= set(stage.members)
    assert found["s5b1_sc"].consumers[-1] == "fc"
    assert "fc" not in found, "the classes are not to be widened"


def test_streams_through_a_concatenation_or_a_flattening_cannot_be_widened() -> None:
    nodes = (
        Node("in", Input(8, 8, 3)),
        Node("a", Conv(8), ("in",)),
        Node("b", Conv(8), ("in",)),
        Node("cat", Concat(), ("a", "b")),
        Node("c", Conv(8), ("cat",)),
        Node("flat", Flatten(), ("c",)),
        Node("fc", Dense(2), ("flat",)),
    )
    assert streams(Architecture(nodes)) == ()


def test_the_stream_of_a_node_is_that_of_all_streams() -> None:
    grown = apply_all(INITIAL, (Deepen("relu1"), AddSkip("s2b1_arelu", "s3b1_arelu"), Deepen("s4b2_relu")))
    for architecture in (INITIAL, grown):
        found = {name: stream for stream in streams(architecture) for name in stream.members}
        assert {node.name: stream_of(architecture, node.name) for node in architecture.nodes} == {
            node.name: found.get(node.name) for node in architecture.nodes
        }
    assert stream_of(INITIAL, "nowhere") is None
