"""The digest of a run in virtual time: the answers of the raw records, checked and rebuilt."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from aiperf.config.settings import RunConfig, load_config
from aiperf.config.space import read_space
from aiperf.records.digest.entries import Began, decode_entry, encode_entry
from aiperf.records.digest.reader import DigestReader, Line
from aiperf.run_directory.paths import RunPaths, digests_of
from aiperf.wire.messages import Job
from analysis.results.verify import verify
from benchmarks.scale.agent import measure
from referee.replay import replay
from replica.search.choices import Choices, Memory
from replica.search.knowledge import Knowledge
from search_space.hyperparameters import default_space_file
from tests.support.forging import of_trial, rewrite
from tests.support.virtual.lifecycle import conduct_virtually, resume_virtually

REPLICAS = 3
SEGMENT = "digest/primary-1/000001.jsonl"


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load_config(
        overrides={
            "run.dataset": "digits",
            "run.replicas": REPLICAS,
            "run.duration": "40m",
            "search.strategy": "random",
            "training.trainer": "simulated",
            "simulated.epoch_seconds": 30.0,
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, config: RunConfig) -> RunPaths:
    root = tmp_path_factory.mktemp("digest") / "run"
    assert conduct_virtually(root, config, shown=io.StringIO()) == "deadline"
    return RunPaths(root)


@pytest.fixture
def copy(finished: RunPaths, tmp_path: Path) -> RunPaths:
    return RunPaths(shutil.copytree(finished.root, tmp_path / "run"))


def lines_of(paths: RunPaths, primary: str) -> list[Line]:
    return list(DigestReader(paths, primary).read_new())


def followed(paths: RunPaths, digest: str | None) -> Knowledge:
    knowledge = Knowledge(paths)
    knowledge.follow(digest)
    knowledge.read()
    return knowledge


def answers(knowledge: Knowledge) -> list[object]:
    """All that a planner asks."""
    space = read_space(default_space_file("digits"))
    observed = knowledge.observations()
    return [
        [(trial.trial, trial.accuracy) for trial in knowledge.ranked()],
        knowledge.trainings(),
        knowledge.points_started(),
        knowledge.tried(space),
        [(one.architecture.hash, one.accuracy) for one in observed.completed],
        [one.hash for one in observed.pending],
        observed.failed,
        [(knowledge.qualities(trial), knowledge.mentions(trial)) for trial in range(90)],
        [knowledge.initial_is_due(name, 100) for name in sorted(observed.hashes)],
    ]


def test_the_digest_gives_the_answers_and_the_proposals_of_the_raw_records(
    finished: RunPaths, config: RunConfig
) -> None:
    raw, digested = followed(finished, None), followed(finished, "primary-1")
    assert digested.cursor().text.startswith("digest/primary-1:")
    assert len(raw.ranked()) > 20
    assert answers(raw) == answers(digested)
    plans = []
    for knowledge in (raw, digested):
        choices = Choices(1, config, finished, Memory(), knowledge)
        own = max(trial.trial for trial in knowledge.ranked() if trial.started.point == 0)
        jobs = [Job(trial=0, round=9, seed=0), Job(trial=0, round=9, seed=0, point=1, base=own)]
        plans.append([choices.training(job).training for job in jobs])
    assert plans[0] == plans[1]


def test_every_plan_names_its_place_in_the_digest_and_can_be_replayed(finished: RunPaths) -> None:
    result = replay(finished, None)
    assert result.differences == ()
    assert result.equal == result.replayable > 20
    assert verify(finished) == []


@pytest.mark.parametrize("place", [0, 10_000])
def test_a_replay_finds_a_plan_from_another_place_of_the_digest(copy: RunPaths, place: int) -> None:
    trial = max(line.entry.trial for line in lines_of(copy, "primary-1") if isinstance(line.entry, Began))
    rewrite(copy, of_trial(trial, cursor=f"digest/primary-1:{place}"))
    assert "cursor" in {difference.field for difference in replay(copy, None, [trial]).differences}
    assert any("cursor" in problem for problem in verify(copy))


Edit = Callable[[list[bytes]], list[bytes]]


def changed(name: str, value: object, entry: str = "over") -> Edit:
    """Give a field of the tenth entry of a kind another value, with a checksum that fits."""

    def edit(lines: list[bytes]) -> list[bytes]:
        places = [place for place, line in enumerate(lines) if json.loads(line)["entry"] == entry]
        place = places[9]
        forged = replace(decode_entry(lines[place]), **{name: value})
        return [*lines[:place], encode_entry(forged)[:-1], *lines[place + 1 :]]

    return edit


def ends_exchanged(lines: list[bytes]) -> list[bytes]:
    one, other = [place for place, line in enumerate(lines) if b'"over"' in line][9:11]
    return [*lines[:one], lines[other], *lines[one + 1 : other], lines[one], *lines[other + 1 :]]


EDITS: dict[str, Edit] = {
    "another quality": changed("qualities", (0.99,) * 2),
    "another prediction": changed("predicted", 0.99),
    "another end": changed("how", "failed"),
    "another trial": changed("trial", 999),
    "another architecture": changed("architecture", "0" * 16, "began"),
    "other hyperparameters": changed("hyperparameters", {"batch_size": 1}, "began"),
    "a start removed": lambda lines: [line for line in lines if b'"began","trial":10,' not in line],
    "an end removed": lambda lines: [line for line in lines if b'"over","trial":10,' not in line],
    "an entry twice": lambda lines: [*lines[:20], lines[19], *lines[20:]],
    "two ends exchanged": ends_exchanged,
    "a flipped byte": lambda lines: [*lines[:20], lines[20].replace(b"trial", b"tryal"), *lines[21:]],
    "the end cut off": lambda lines: lines[:20],
    "all removed": lambda lines: [],
}


CUT = ("the end cut off", "all removed")
"""Edits that only the cursors behind the end show: a primary that dies leaves such a digest."""


@pytest.mark.parametrize("name", EDITS)
def test_verify_finds_an_edit_of_the_digest(name: str, copy: RunPaths) -> None:
    segment = copy.root / SEGMENT
    before = segment.read_bytes().split(b"\n")[:-1]
    after = EDITS[name](before)
    assert after != before
    segment.write_bytes(b"".join(line + b"\n" for line in after))
    problems = verify(copy)
    assert any("cursor" in problem for problem in problems)
    # Also of an opponent who makes all cursors fit again.
    assert any(problem.startswith(f"{SEGMENT} line ") for problem in problems) == (name not in CUT)


def test_what_an_agent_reads_grows_with_the_trials(tmp_path: Path) -> None:
    found = measure(tmp_path, replicas=16, trials=300, architectures=3)
    assert found["look_files_opened"] == 1
    assert found["agent_read_mb"] < 300 * 1000 / 1e6


def test_a_removed_digest_is_found(copy: RunPaths) -> None:
    shutil.rmtree(digests_of(copy))
    assert any("digest/primary-1" in problem for problem in verify(copy))


@pytest.mark.parametrize("damage", ["removed", "changed"])
def test_an_agent_that_finds_damage_reads_the_raw_records_and_says_so(
    copy: RunPaths, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    if damage == "removed":
        shutil.rmtree(digests_of(copy))
    else:
        segment = copy.root / SEGMENT
        segment.write_bytes(segment.read_bytes().replace(b"completed", b"complete!", 1))
    knowledge = followed(copy, "primary-1")
    assert answers(knowledge) == answers(followed(copy, None))
    assert not knowledge.cursor().text.startswith("digest/")
    assert "the digest primary-1 is not used" in caplog.text
    knowledge.follow("primary-1")
    assert not knowledge.cursor().text.startswith("digest/")


@pytest.mark.parametrize("damage", ["none", "removed", "changed", "stale"])
def test_after_a_resumption_nothing_is_lost_and_the_old_digest_does_not_matter(
    copy: RunPaths, config: RunConfig, damage: str
) -> None:
    trials, segment = len(lines_of(copy, "primary-1")), copy.root / SEGMENT
    whole = segment.read_bytes()
    if damage == "removed":
        shutil.rmtree(digests_of(copy))
    elif damage == "changed":
        segment.write_bytes(whole.replace(b"completed", b"complete!", 1))
    elif damage == "stale":
        segment.write_bytes(b"".join(whole.splitlines(keepends=True)[:20]))
    assert resume_virtually(copy.root, config, later_s=3 * 3600) == "deadline"
    assert len(lines_of(copy, "primary-2")) > 1.5 * trials
    assert answers(followed(copy, "primary-2")) == answers(followed(copy, None))
    assert followed(copy, "primary-2").is_superseded(2) is False
    if damage == "none":
        assert followed(copy, "primary-1").is_superseded(1)
        assert replay(copy, None).differences == ()
    assert (verify(copy) == []) == (damage == "none")
