"""The process of a profile, as its parent starts it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from replica.measure.profile import cli
from replica.measure.profile.settings import ProfileSettings


def test_what_a_killed_profile_leaves_is_in_the_folder_of_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*command: object, env: dict[str, str], **options: Any) -> None:
        assert Path(env["TMPDIR"]) == tmp_path
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "why_not_installed", lambda framework: None)
    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cli.profile_step(ProfileSettings(output=str(tmp_path / "profile.json"), batch_size=1))
