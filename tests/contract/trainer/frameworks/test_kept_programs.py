"""Programs that compilers keep: the next process finds them, and damaged ones change no result."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replica.trainer.temporary import COMPILER_FOLDERS, kept_programs
from tests.support.needs import need
from tests.support.trainings.apart import call_apart
from tests.support.trainings.installed import need_frameworks

FOLDERS = {"jax": "JAX_COMPILATION_CACHE_DIR", "torch": "TORCHINDUCTOR_CACHE_DIR"}

# Without vector instructions, each of which PyTorch tries by a program of its own, and without the
# headers that it compiles for each folder for temporary files: both take longer than the region.
PLAIN = {"TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}

GARBAGE = b"\x93 neither a program nor a text \x00" * 64


class Kept:
    """Processes of a framework that share the folder of kept programs."""

    def __init__(self, framework: str, variables: dict[str, str], folder: Path) -> None:
        self._framework = framework
        self._environment = {"KERAS_BACKEND": framework, "JAX_PLATFORMS": "cpu", **PLAIN, **variables}
        self._results = folder
        self.programs = Path(variables[FOLDERS[framework]])
        self.first = self.process()

    def process(self) -> dict[str, Any]:
        """The results of one more process."""
        (found,) = call_apart(
            f"tests.support.trainings.{self._framework}_apart:with_kept_programs", self._results, self._environment
        )
        assert isinstance(found, dict)
        return found

    @contextmanager
    def damaged(self, pattern: str, damage: Callable[[bytes], bytes]) -> Iterator[None]:
        """Run a block with damaged files, and have them whole again after it.

        In their own place: compilers may keep the paths of their files.
        """
        whole = self.programs.with_name("whole")
        shutil.copytree(self.programs, whole)
        try:
            files = [path for path in self.programs.glob(pattern) if path.is_file()]
            assert files
            for path in files:
                path.write_bytes(damage(path.read_bytes()))
            yield
        finally:
            shutil.rmtree(self.programs)
            whole.rename(self.programs)


def kept_by(framework: str, folder: Path) -> Iterator[Kept]:
    with pytest.MonkeyPatch.context() as patch:
        # JAX keeps what its own limits say, which the trainer leaves alone.
        limits = [name for name in os.environ if name.startswith("JAX_PERSISTENT_CACHE")]
        for name in (*COMPILER_FOLDERS, *limits):
            patch.delenv(name, raising=False)
        with kept_programs(True) as variables:
            yield Kept(framework, variables, folder)


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    need_frameworks("jax")
    yield from kept_by("jax", tmp_path_factory.mktemp("jax"))


@pytest.fixture(scope="module")
def on_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    need_frameworks("torch")
    need("g++")
    yield from kept_by("torch", tmp_path_factory.mktemp("torch"))


def test_a_second_process_on_jax_finds_the_programs_of_the_first(on_jax: Kept) -> None:
    second = on_jax.process()
    both = 2  # the training step and the evaluation
    assert (on_jax.first["found"], on_jax.first["missed"]) == (0, both)
    assert (second["found"], second["missed"]) == (both, 0)
    assert (second["rows"], second["weights"]) == (on_jax.first["rows"], on_jax.first["weights"])


def in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def garbage(content: bytes) -> bytes:
    return GARBAGE


@pytest.mark.parametrize("damage", [in_half, garbage])
def test_programs_of_jax_that_are_damaged_are_compiled_again(on_jax: Kept, damage: Callable[[bytes], bytes]) -> None:
    with on_jax.damaged("**/*", damage):
        found = on_jax.process()
    assert (found["found"], found["missed"]) == (0, 2)
    np.testing.assert_allclose(found["rows"], on_jax.first["rows"], rtol=1e-6)
    for mine, other in zip(found["weights"], on_jax.first["weights"], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_a_second_process_on_pytorch_finds_the_region_of_the_first(on_torch: Kept) -> None:
    second = on_torch.process()
    assert (on_torch.first["failure"], second["failure"]) == (None, None)
    assert on_torch.first["found"] == 0 and on_torch.first["missed"] > 0
    assert second["found"] == on_torch.first["missed"] and second["missed"] == 0
    assert second["results"] == on_torch.first["results"]


def assert_close(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for mine, other in zip(found["results"], wanted["results"], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_a_region_of_pytorch_whose_entries_are_damaged_is_compiled_again(on_torch: Kept) -> None:
    with on_torch.damaged("fxgraph/**/*", garbage):
        found = on_torch.process()
    assert (found["failure"], found["found"]) == (None, 0)
    assert_close(found, on_torch.first)


def test_a_region_of_pytorch_whose_files_are_all_damaged_computes_the_same(on_torch: Kept) -> None:
    """PyTorch takes a library that it finds for a whole one, and raises when that loads no more."""
    with on_torch.damaged("**/*", garbage):
        found = on_torch.process()
    assert found["found"] == 0
    assert_close(found, on_torch.first)


def test_a_region_of_pytorch_whose_libraries_are_damaged_computes_the_same(on_torch: Kept) -> None:
    """Here PyTorch finds what it has compiled, and raises when it loads that."""
    with on_torch.damaged("**/*.so", garbage):
        found = on_torch.process()
    assert_close(found, on_torch.first)
