"""Hyperparameters that change the architecture."""

from aiperf.network.layers import Conv
from aiperf.network.operations import count
from search_space.hyperparameters import apply_hyperparameters, with_kernel_size
from search_space.morphisms import Deepen
from search_space.resnet import resnet

INITIAL = resnet(50, 32, 10)


def test_the_kernel_size_is_applied_before_the_model_is_built() -> None:
    grown = Deepen("s2b1_relu").apply(Deepen("relu1").apply(INITIAL))
    tuned = apply_hyperparameters(grown, {"kernel_size": 5, "batch_size": 8})
    changed = [n.name for n, old in zip(tuned.nodes, grown.nodes, strict=True) if n.layer != old.layer]
    assert sorted(changed) == ["deep1_conv", "deep2_conv"]
    assert all(
        node.layer.kernel == (5, 5)
        for node in tuned.nodes
        if isinstance(node.layer, Conv) and node.layer.tunable_kernel
    )
    assert count(tuned).operations.total > count(grown).operations.total
    assert with_kernel_size(INITIAL, 5) == INITIAL
    assert apply_hyperparameters(grown, {"batch_size": 8}) == grown
