from __future__ import annotations

import random
from pathlib import Path

import pytest

from aiperf.errors import ArchitectureError
from aiperf.history import HistoryReader
from aiperf.layers import Conv
from aiperf.ledger import Ledger
from aiperf.models import ArchitectureStore
from aiperf.seeds import fold_seed
from replica.proposer import propose
from search_space.morphisms import deepen, deepen_sites
from search_space.resnet import resnet
from tests.helpers import HandMadeRun

INITIAL = resnet(50, 32, 10)


def test_deepen_inserts_a_block_between_a_relu_and_all_its_readers() -> None:
    child = deepen(INITIAL, "s2b1_relu")
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
    assert len({deepen(INITIAL, site).hash for site in sites}) == 49
    assert "deep2_conv" in deepen(deepen(INITIAL, "relu1"), "deep1_relu").by_name


def test_deepen_refuses_other_places() -> None:
    for place in ("conv1", "fc_softmax", "nowhere"):
        with pytest.raises(ArchitectureError, match="cannot deepen"):
            deepen(INITIAL, place)


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    return HandMadeRun(tmp_path).at(0).release(100)


def ledger(run: HandMadeRun) -> Ledger:
    result = Ledger()
    result.add(HistoryReader(run.paths).read_new().records)
    return result


def test_the_first_trial_is_the_initial_architecture_and_no_other_is(run: HandMadeRun) -> None:
    store = ArchitectureStore(run.paths)
    assert propose(1, INITIAL, ledger(run), store, random.Random(0)).architecture == INITIAL
    second = propose(2, INITIAL, ledger(run), store, random.Random(0))
    assert (second.parent, second.architecture.hash != INITIAL.hash) == (INITIAL.hash, True)


def test_the_parent_is_the_most_accurate_completed_trial(run: HandMadeRun) -> None:
    store = ArchitectureStore(run.paths)
    best, other = deepen(INITIAL, "relu1"), deepen(INITIAL, "s3b1_relu")
    for trial, (architecture, correct) in enumerate(((INITIAL, 200), (best, 300), (other, 250)), start=1):
        store.save(architecture)
        run.architecture = architecture
        run.at(trial).start_trial(trial).epoch(trial, 1, correct=correct).end_trial(trial)
    run.architecture = other
    run.start_trial(4).epoch(4, 1, correct=360).fail_trial(4)
    proposal = propose(5, INITIAL, ledger(run), store, random.Random(3))
    assert proposal.parent == best.hash
    assert proposal == propose(5, INITIAL, ledger(run), ArchitectureStore(run.paths), random.Random(3))


def test_architectures_of_the_history_are_not_proposed_again(run: HandMadeRun) -> None:
    store = ArchitectureStore(run.paths)
    seen = set()
    for trial in range(2, 80):
        proposal = propose(trial, INITIAL, ledger(run), store, random.Random(trial))
        assert proposal.architecture.hash not in seen
        seen.add(proposal.architecture.hash)
        store.save(proposal.architecture)
        run.architecture = proposal.architecture
        run.start_trial(trial)


def test_seeds_are_folded_from_every_part() -> None:
    parts = [(1, "search", 1, 0), (2, "search", 1, 0), (1, "train", 1, 0), (1, "search", 2, 0), (1, "search", 1, 1)]
    seeds = [fold_seed(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert seeds == [fold_seed(*part) for part in parts]
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_foreign_architecture_file_is_found(run: HandMadeRun) -> None:
    store = ArchitectureStore(run.paths)
    child = deepen(INITIAL, "relu1")
    path = run.paths.architecture(child.hash)
    path.parent.mkdir(parents=True)
    path.write_text(run.paths.architecture(INITIAL.hash).read_text())
    with pytest.raises(ArchitectureError, match="the file is foreign"):
        store.load(child.hash)
