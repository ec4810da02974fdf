"""The order in which architectures are read, and what spares reading one as a whole."""

from pathlib import Path

import pytest

from aiperf.errors import ArchitectureError
from aiperf.network.json_files import read_architecture, to_json
from analysis.reading.architectures import _in_families
from search_space.hyperparameters import with_kernel_size
from search_space.morphisms import Deepen, Widen, deepen_sites
from search_space.resnet import resnet
from search_space.streams import streams


def test_an_architecture_comes_behind_its_source_and_each_of_a_circle_once() -> None:
    sources = {"a2": "a1", "b2": "b1", "a3": "a2", "c1": "c2", "c2": "c1", "d": "unknown"}
    assert _in_families(["a3", "b1", "a2", "b2", "c1", "a1", "c2", "d"], sources) == [
        "b1",
        "b2",
        "a1",
        "a2",
        "a3",
        "d",
        "c1",
        "c2",
    ]


def test_a_file_is_taken_for_the_expected_architecture_only_if_it_holds_that(tmp_path: Path) -> None:
    initial = resnet(50, 32, 10)
    grown = Deepen(deepen_sites(initial)[0]).apply(initial)
    (file := tmp_path / "architecture.json").write_text(to_json(grown))
    assert read_architecture(file, grown) is grown
    other = read_architecture(file, with_kernel_size(grown, 5))
    assert other == grown
    assert other.hash == grown.hash


def test_a_number_that_no_reader_takes_is_refused_though_it_is_expected(tmp_path: Path) -> None:
    initial = resnet(50, 32, 10)
    stream = streams(initial)[0]
    wide = Widen(stream.producers[0], 10**12).apply(initial)
    (file := tmp_path / "architecture.json").write_text(to_json(wide))
    with pytest.raises(ArchitectureError, match="13 digits"):
        read_architecture(file, wide)
