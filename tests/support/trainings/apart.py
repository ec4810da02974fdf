"""Functions of tests in processes of their own, whose frameworks are set up before they load."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replica.trainer.collectives.rank import meeting_point
from replica.trainer.starters import STARTERS, RankRequest

LIMIT_S = 300


def call_apart(function: str, folder: Path, environment: Mapping[str, str], ranks: int = 1) -> list[Any]:
    """What a function, `module:name`, has returned in each of the ranks, by rank.

    `folder` is for their results. Fails with all that the processes have written if one fails.
    """
    words = STARTERS.load("processes")(RankRequest((sys.executable, "-m", __name__, function, str(folder)), ranks))
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        words,
        env={**os.environ, **paths, **meeting_point(()), **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def main(function: str, folder: str) -> None:
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)()
    (Path(folder) / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
