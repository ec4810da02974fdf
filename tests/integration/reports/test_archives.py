"""Archives in the hands of those who have nothing else: every verb takes them, or says why not."""

import json
from pathlib import Path

import pytest

from tests.integration.reports.test_signatures import make_key
from tests.support.hand_made import HandMadeRun, aiperf_here


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest run below runs/, packed and signed, and the signers of another key."""
    root = tmp_path_factory.mktemp("archives")
    run = (
        HandMadeRun(root / "runs" / "first", {"training.max_epochs": 4})
        .at(0)
        .release(100)
        .at(1)
        .start_trial(1)
        .at(50)
        .epoch(1, 1)
    )
    run.end_trial(1).end(100)
    own, _ = make_key(root, "own"), make_key(root, "foreign")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        packed = aiperf_here("export", "--file", root / "first.tar.gz", "--sign", own.private, "--format", "json")
    found = json.loads(packed.stdout)
    assert (found["run"], found["archive"]) == ("runs/first", str(root / "first.tar.gz"))
    assert found["files"] > 5
    return root


@pytest.fixture(autouse=True)
def there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


def test_the_report_of_an_archive_is_that_of_its_run(root: Path) -> None:
    refused = aiperf_here("report", "first.tar.gz")
    assert refused.returncode == 2
    assert "--output" in refused.stderr
    done = aiperf_here("report", "first.tar.gz", "--output", "out", "--format", "json")
    own = aiperf_here("report", "--format", "json")
    assert done.returncode == own.returncode == 0, done.stderr
    assert json.loads(done.stdout)["score_ops"] == json.loads(own.stdout)["score_ops"] > 0
    assert (root / "out" / "report.json").is_file()
    shown = aiperf_here("report", "first.tar.gz", "--output", "out")
    assert "aiperf check first.tar.gz" in shown.stderr + shown.stdout


def test_the_status_of_an_archive_is_that_of_its_records(root: Path) -> None:
    found = json.loads(aiperf_here("status", "first.tar.gz", "--format", "json").stdout)
    assert (found["state"], found["trials"], found["next"]) == ("ended", 1, "aiperf check first.tar.gz")


@pytest.mark.parametrize("words", [(), ("first.tar.gz",)], ids=["the newest run", "an archive"])
def test_problems_of_a_run_and_of_its_archive_are_counted_alike(root: Path, words: tuple[str, ...]) -> None:
    done = aiperf_here("verify", *words, "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["problems"]) == (0, [])
    assert aiperf_here("verify", *words).stdout.endswith("0 problem(s)\n")


def test_an_audit_of_an_archive_says_at_once_what_it_cannot_do(root: Path) -> None:
    done = aiperf_here("audit", "first.tar.gz", "--nonce", "word")
    assert "an archive has no weights to evaluate" in done.stderr.splitlines()[0]
    assert done.returncode == 1


def test_the_last_line_knows_of_a_foreign_signer(root: Path) -> None:
    done = aiperf_here("check", "first.tar.gz", "--signers", "foreign.signers", "--replay", 0)
    assert done.returncode == 1
    *_, verdict, last = done.stdout.splitlines()
    assert verdict == "verdict: invalid"
    assert "score=invalid" in last
    assert last.endswith("status=FAILED")
    good = aiperf_here("check", "first.tar.gz", "--signers", "own.signers", "--replay", 0)
    assert good.stdout.splitlines()[-1].endswith("status=UNOFFICIAL")
