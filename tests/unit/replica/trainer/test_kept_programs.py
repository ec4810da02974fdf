"""The folder for what compilers make: the run's, on its node, and nobody else's."""

import stat
from pathlib import Path

import pytest

from replica.trainer.temporary import COMPILER_FOLDERS, kept_programs


def test_programs_are_kept_in_a_folder_of_ones_own_that_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in COMPILER_FOLDERS:
        monkeypatch.delenv(name, raising=False)
    with kept_programs(True) as variables:
        (folder,) = tmp_path.iterdir()
        assert variables.keys() == COMPILER_FOLDERS.keys()
        assert {Path(value).parent for value in variables.values()} == {folder}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        Path(variables["TORCHINDUCTOR_CACHE_DIR"]).mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_the_operator_chose_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/fast/programs")
    with kept_programs(True) as variables:
        assert list(variables) == ["JAX_COMPILATION_CACHE_DIR"]
    with kept_programs(False) as variables:
        assert variables == {} and list(tmp_path.iterdir()) == []
