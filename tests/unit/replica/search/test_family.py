"""Outlines of architectures that are made of one another, without their files."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture
from aiperf.network.layers import Concat
from aiperf.records.bodies import TrialStarted
from aiperf.run_directory.architectures import ArchitectureStore
from replica.search import outlines
from replica.search.knowledge import Knowledge
from replica.search.outlines import Family, describe, described, grown, outlined, skeleton_of, with_kernel_size
from search_space import hyperparameters
from search_space.morphisms import AddSkip, Deepen, EnlargeKernel, Morph, Widen, apply_all, morph_data
from search_space.resnet import resnet
from search_space.sampling import random_morph
from tests.support.hand_made import HandMadeRun

INITIAL = resnet(50, 32, 10)


def trial(
    number: int,
    architecture: Architecture,
    parent: Architecture | None,
    *morphs: Morph,
    base: int | None = None,
    kernel_size: int | None = None,
) -> TrialStarted:
    return TrialStarted(
        trial=number,
        replica=0,
        round=number,
        architecture=architecture.hash,
        parent=parent.hash if parent is not None else None,
        morphs=tuple(morph_data(morph) for morph in morphs),
        point=0 if base is None else 1,
        base=base,
        epochs=2,
        hyperparameters={"batch_size": 64, **({} if kernel_size is None else {"kernel_size": kernel_size})},
    )


class Loads:
    """A store of some architectures that counts what is loaded."""

    def __init__(self, *architectures: Architecture) -> None:
        self.known = {architecture.hash: architecture for architecture in architectures}
        self.names: list[str] = []

    def load(self, name: str) -> Architecture:
        """The architecture of a hash. Raises ArchitectureError."""
        self.names.append(name)
        if name not in self.known:
            raise ArchitectureError(f"{name} is missing")
        return self.known[name]

    def family(self, starts: Sequence[TrialStarted]) -> Family:
        """The family of these starts."""
        in_order = sorted(starts, key=lambda start: start.trial, reverse=True)
        first = {start.architecture: start for start in in_order}
        return Family(self.load, first.get, {start.trial: start for start in starts}.get)


@pytest.mark.parametrize(("depth", "size", "classes"), [(50, 32, 10), (101, 33, 7), (152, 224, 1000)])
def test_a_skeleton_grows_as_the_architecture_does(depth: int, size: int, classes: int) -> None:
    rng = random.Random(depth)
    initial = resnet(depth, size, classes)
    first = skeleton_of(initial)
    assert first is not None
    for _ in range(6):
        architecture, skeleton = initial, first
        for _ in range(25):
            if rng.random() < 0.1:
                kernel = rng.choice((1, 3, 5))
                architecture = hyperparameters.with_kernel_size(architecture, kernel)
                skeleton = with_kernel_size(skeleton, kernel)
            morph, architecture = random_morph(architecture, rng)
            skeleton = grown(skeleton, morph)
            assert described(skeleton) == describe(architecture), morph
    # The next morph of an architecture that was read follows as well.
    read = skeleton_of(architecture)
    assert read is not None
    morph, architecture = random_morph(architecture, rng)
    assert described(grown(read, morph)) == describe(architecture)


def test_architectures_are_outlined_by_the_records_of_their_trials() -> None:
    morphs: tuple[Morph, ...] = (Deepen("relu1"), EnlargeKernel("deep1_conv"), AddSkip("relu1", "s2b2_relu"))
    child = apply_all(INITIAL, morphs)
    tuned = hyperparameters.with_kernel_size(child, 7)
    grandchild = Widen("deep1_conv", 128).apply(tuned)
    starts = [
        trial(1, INITIAL, None),
        trial(2, child, INITIAL, *morphs),
        trial(3, child, INITIAL, *morphs, base=2, kernel_size=5),
        trial(4, tuned, INITIAL, base=2, kernel_size=7),
        trial(5, grandchild, tuned, Widen("deep1_conv", 128)),
    ]
    store = Loads(INITIAL)
    found = store.family(starts[::-1])
    for architecture in (grandchild, tuned, child, INITIAL):
        assert found.outline(architecture.hash) == outlined(architecture, store.load)
    assert store.names == [INITIAL.hash]


def test_an_architecture_is_read_if_its_records_do_not_lead_to_it() -> None:
    child = Deepen("relu1").apply(INITIAL)
    grandchild = Deepen("relu1").apply(child)
    unknown = Deepen("s2b1_relu").apply(child)
    forged = [
        trial(2, child, INITIAL, Deepen("nowhere")),
        trial(2, child, INITIAL, Widen("s2b1_a", 2**70)),
        trial(2, child, INITIAL, AddSkip("relu1", "s2b1_a")),
        trial(2, child, INITIAL, EnlargeKernel("relu1")),
        structs.replace(trial(2, child, INITIAL), morphs=({"kind": "Widen", "stream": "s2b1_a", "channels": "wide"},)),
        structs.replace(trial(2, child, INITIAL), morphs=({"kind": "Shrink"},)),
        trial(2, child, INITIAL, *[Deepen("relu1")] * 5),
        trial(2, child, child, Deepen("relu1")),
        trial(2, child, grandchild, Deepen("relu1")),
        trial(2, child, INITIAL, base=1, kernel_size=-1),
        trial(2, child, None),
        trial(2, unknown, INITIAL),
    ]
    for start in forged:
        store = Loads(INITIAL, child, grandchild)
        found = store.family([trial(1, INITIAL, None), start, trial(3, grandchild, child, Deepen("relu1"))])
        assert found.outline(grandchild.hash) == outlined(grandchild, store.load), start
        assert found.outline(child.hash) == outlined(child, store.load), start
        assert child.hash in store.names


def test_an_architecture_of_which_an_ancestor_is_missing_is_read() -> None:
    child = Deepen("relu1").apply(INITIAL)
    starts = [trial(1, INITIAL, None), trial(2, child, INITIAL, Deepen("relu1"))]
    store = Loads(child)
    assert store.family(starts).outline(child.hash) == outlined(child, store.load)
    with pytest.raises(ArchitectureError, match="is missing"):
        Loads().family(starts).outline(child.hash)


def test_an_architecture_that_no_skeleton_can_show_is_read() -> None:
    layers = {"s2b3_add": Concat()}
    joined = Architecture(tuple(replace(node, layer=layers.get(node.name, node.layer)) for node in INITIAL.nodes))
    child = Deepen("s2b3_relu").apply(joined)
    store = Loads(joined, child)
    found = store.family([trial(1, joined, None), trial(2, child, joined, Deepen("s2b3_relu"))])
    assert skeleton_of(joined) is None
    assert found.outline(child.hash) == outlined(child, store.load)


def test_parents_that_were_forgotten_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "MOST_SKELETONS", 2)
    rng, line, starts = random.Random(1), [INITIAL], [trial(1, INITIAL, None)]
    for number in range(2, 10):
        morph, child = random_morph(line[-1], rng)
        starts.append(trial(number, child, line[-1], morph))
        line.append(child)
    store = Loads(INITIAL)
    found = store.family(starts)
    for architecture in (line[-1], line[4], line[1], line[8]):
        assert found.outline(architecture.hash) == outlined(architecture, store.load)
    assert set(store.names) == {INITIAL.hash}


def test_a_replica_knows_outlines_without_files(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 1}).at(0).release(1000, replicas=1)
    ArchitectureStore(run.paths).save(INITIAL)
    child = Deepen("relu1").apply(INITIAL)
    for start in (trial(1, INITIAL, None), trial(2, child, INITIAL, Deepen("relu1"))):
        run.at(start.trial).replicas[0].append(start)
        run.epoch(start.trial, 1).end_trial(start.trial)
    knowledge = Knowledge(run.paths)
    knowledge.read()
    assert [o.architecture for o in knowledge.observations().completed] == [
        outlined(INITIAL, knowledge.load),
        outlined(child, knowledge.load),
    ]
