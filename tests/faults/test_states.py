"""A few seeds of the campaign over the states of runs, which finds a word that is untrue."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import states
from tests.faults.states import Claims, Expected, contradictions, judge_seed

SEEDS = (11, 14)
"""Between them, every state occurs."""


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Claims:
    return Claims.made(tmp_path_factory.mktemp("claims"))


def test_all_words_about_a_run_agree_at_any_moment(
    tmp_path: Path, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    def noted(run: Path, now_ms: int, expected: Expected) -> Iterator[str]:
        seen.add(expected.state)
        return contradictions(run, now_ms, expected)

    monkeypatch.setattr(states, "contradictions", noted)
    for seed in SEEDS:
        assert judge_seed(seed, tmp_path / str(seed), claims) == []
    assert seen == {"starting", "running", "interrupted", "ended", "failed"}


def test_an_untrue_word_is_found(tmp_path: Path, claims: Claims, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "badge", lambda report: "invalid")
    monkeypatch.setattr(states, "exit_code", lambda reason: 0 if reason == "no_replicas" else 3)
    found = " ".join(judge_seed(SEEDS[0], tmp_path, claims, moments=4))
    assert "badge: 'invalid' in place of 'running'" in found
    assert "exit code: 3 in place of 0" in found
