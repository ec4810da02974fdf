"""The accelerators of a node, shared among its replicas."""

from __future__ import annotations

from replica.machine.accelerators import Accelerator, best_precision, share_of, visible


def gpu(index: int, capability: tuple[int, int] = (9, 0)) -> Accelerator:
    return Accelerator(index, "GPU", 80 << 30, capability, "570")


def test_replicas_of_a_node_share_its_accelerators() -> None:
    node = [gpu(n) for n in range(4)]
    assert [[a.index for a in share_of(node, replica, 2)] for replica in (0, 1, 2)] == [[0, 2], [1, 3], [0, 2]]
    assert [[a.index for a in share_of(node[:1], replica, 2)] for replica in (0, 1)] == [[0], [0]]
    assert share_of([], 0, 2) == ()
    assert [a.index for a in visible(node, None)] == [0, 1, 2, 3]
    assert [a.index for a in visible(node, "2, 0")] == [2, 0]
    assert [a.index for a in visible(node, "")] == []
    assert len(visible(node, "GPU-1234,GPU-5678")) == 2


def test_the_precision_is_the_fastest_of_the_weakest_accelerator() -> None:
    assert best_precision([gpu(0, (9, 0)), gpu(1, (8, 0))]) == "mixed_bfloat16"
    assert best_precision([gpu(0, (9, 0)), gpu(1, (7, 5))]) == "mixed_float16"
    assert best_precision([gpu(0, (6, 1))]) == "float32"
    assert best_precision([], frozenset({"avx2"})) == "float32"
    assert best_precision([], frozenset({"avx2", "avx512_bf16"})) == "mixed_bfloat16"
