"""A share of the corpus; all of it: `python -m tests.hardening.corpus`."""

from pathlib import Path

import pytest

from tests.hardening.corpus.case import Case, complaint
from tests.hardening.corpus.judge import ROWS, hand_over, in_a_process, judged

# Other tests may have loaded JAX, which warns of every fork; the judge's processes do not use it.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

SHARES = {
    "settings": 97,
    "toml": 9,
    "yaml": 17,
    "paths": 61,
    "archives": 13,
    "data sets": 9,
    "imagenet": 9,
    "science": 13,
    "damaged runs": 97,
    "absurd records": 13,
}
"""Each so-many-th input; Keras files are tested in `test_keras_files.py`."""


@pytest.mark.parametrize("name", SHARES)
def test_a_share_of_the_corpus_is_answered(name: str) -> None:
    tally = judged(name, SHARES[name])
    assert tally.flaws == []
    assert tally.inputs >= ROWS[name][0] // SHARES[name]


def _spin(_: Path) -> str:
    while True:
        pass


def _leave(folder: Path) -> str:
    (folder.parent / "x").touch()
    return ""


def _fill(_: Path) -> str:
    return str(len(bytearray(b"x" * (1200 << 20))))


def _divide(_: Path) -> str:
    return complaint(lambda: 1 // 0)


@pytest.mark.parametrize(
    ("action", "flaw"),
    [
        (_divide, "ZeroDivisionError"),
        (_leave, "left outside"),
        (lambda _: "x" * 10_000, "a message of"),
        (_fill, "the memory grew by"),
        (lambda _: "Traceback", "a traceback"),
    ],
)
def test_the_judge_finds_flaws(action: object, flaw: str) -> None:
    tally = in_a_process([Case("input", action), Case("harmless", lambda _: "")])  # type: ignore[arg-type]
    assert tally.inputs == 2
    assert len(tally.flaws) == 1
    assert flaw in tally.flaws[0]


def test_the_judge_ends_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.hardening.corpus.judge.MOST_SECONDS", 0.1)
    assert in_a_process([Case("input", _spin)]).flaws == ["input: more than 0.1 s"]
    assert hand_over.__doc__
