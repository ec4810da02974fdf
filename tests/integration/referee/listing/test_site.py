"""The site of a list: its numbers, what it keeps, and what others can do to it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aiperf.__main__ import main
from aiperf.clock import format_utc
from aiperf.errors import UsageError
from aiperf.records.chain import hash_of
from aiperf.records.record import decode_record
from aiperf.run_directory.paths import RunPaths
from analysis.results.recomputed_report import check_result
from analysis.results.source import opened_run
from referee.listing import reading
from referee.listing.site import Built, build
from referee.listing.submissions import Submission, is_plain
from tests.integration.referee.listing.conftest import HOSTILE, TURNED

BROKEN = "2026-11/broken.tar.gz"


class Reader:
    """Reads no archive, and notes which it was to read."""

    def __init__(self) -> None:
        self.places: list[str] = []

    def __call__(self, submission: Submission, **_: object) -> reading.Facts:
        self.places.append(submission.place)
        return reading.Facts(made_by="", failure="broken")


def data_of(site: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((site / f"{name}.json").read_text()))


def rows_of(site: Path, edition: str) -> dict[str, dict[str, Any]]:
    return {row["origin"]: row for row in data_of(site, f"editions/{edition}/score")["rows"]}


def state_of(site: Path) -> Mapping[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(site)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in site.rglob("*")
        if path.is_file() and path.parent != site
    }


def test_each_edition_has_what_was_sent_and_what_still_counts(built: Path) -> None:
    found = {
        edition: {place: row["status"] for place, row in rows_of(built, edition).items()}
        for edition in ("2026-06", "2026-11")
    }
    assert found == {
        "2026-06": {"2026-06/ada/alpha.tar.gz": "simulated", "2026-06/hostile.tar.gz": "simulated"},
        "2026-11": {
            "2026-11/ada/alpha.tar.gz": "simulated",
            "2026-11/eve/alpha.tar.gz": "simulated",
            "2026-06/hostile.tar.gz": "simulated",
            "2026-11/forged.tar.gz": "invalid",
            "2026-11/bad.tar.gz": "unofficial",
        },
    }
    index = (built / "index.html").read_text()
    assert "<h1>November 2026</h1>" in index, "the first page has the latest edition with a date"
    following = data_of(built, "editions/next/score")
    assert following["same"] == [{"place": "copy.tar.gz", "kept": "2026-06/ada/alpha.tar.gz"}]
    places = [row["origin"] for row in following["rows"]]
    assert "2026-11/ada/alpha.tar.gz" in places, "a copy of an earlier run does not replace the later one"


def test_the_reasons_are_the_rules_that_a_check_finds_broken(built: Path, made: Path) -> None:
    for place, row in rows_of(built, "2026-11").items():
        reasons = [part.rule for part in check_result(made / place).report.violations]
        assert row["reasons"].split(", ")[: len(reasons)] == reasons


def test_signatures_decide_and_forged_statements_are_invalid(built: Path) -> None:
    rows = rows_of(built, "2026-11")
    assert rows["2026-11/ada/alpha.tar.gz"]["signer"] == "ada@site.example"
    assert "signature" not in rows["2026-11/ada/alpha.tar.gz"]["reasons"]
    assert rows["2026-06/hostile.tar.gz"]["signer"] is None
    assert rows["2026-06/hostile.tar.gz"]["reasons"].endswith("signature")
    assert "statement" in rows["2026-11/forged.tar.gz"]["reasons"]
    alphas = {row["system_id"] for place, row in rows.items() if place.endswith("alpha.tar.gz")}
    assert len(alphas) == 2, "whoever takes another's name is another system"
    (found,) = data_of(built, "editions/2026-11/score")["conflicts"]
    assert "U+200B" in found, "hidden characters of the hostile name"


def test_what_cannot_be_read_costs_its_own_line(built: Path) -> None:
    found = {item["place"]: item["reason"] for item in data_of(built, "editions/2026-11/score")["not_read"]}
    assert found.keys() == {f"2026-11/{name}.tar.gz" for name in ("broken", "text", "linked")}
    assert "link" in found["2026-11/linked.tar.gz"]
    page = (built / "editions/2026-11/score.html").read_text()
    assert all(reason[:20] in page for reason in found.values())


DEADLY = """
import os, signal, sys
from pathlib import Path
from referee.listing import reading
from referee.listing.site import build

read = reading._read

def deadly(submission, *rest):
    if "hostile" in submission.place:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(submission, *rest)

reading._read = deadly
built = build(Path(sys.argv[1]), Path(sys.argv[2]), None, 0)
print(built.results, [(problem.place, problem.reason) for problem in built.problems])
"""


def test_an_archive_that_kills_its_reader_costs_its_own_line(submissions: Path, tmp_path: Path) -> None:
    shutil.rmtree(submissions / "2026-11")
    # In a process of its own, without other threads: it can be copied with what it has replaced.
    words = [sys.executable, "-c", DEADLY, str(submissions), str(tmp_path / "new")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2 [('2026-06/hostile.tar.gz', 'the process that read it was killed")


def test_names_and_descriptions_are_text_without_hidden_characters(built: Path) -> None:
    pages = {str(path.relative_to(built)): path.read_text() for path in built.rglob("*.html")}
    for name, text in pages.items():
        assert "<img" not in text and "<script>window" not in text, name
        assert not re.search("[\u200b\u202e]", text), name
    own = next(text for name, text in pages.items() if name.startswith("systems/alpha") and "water" in text)
    assert "water &lt;b&gt;" in own and r"\u202ealpha" in own
    assert r"CPU \u202e 9" in own and TURNED not in own
    assert HOSTILE.encode() not in (built / "feed.xml").read_bytes()


def test_the_place_the_network_and_the_cooling_stand_next_to_a_system(built: Path) -> None:
    words = "Centre &lt;of&gt; Tests; 4 x NDR 400; warm water"
    rows = rows_of(built, "2026-11")
    assert words in (built / "editions/2026-11/score.html").read_text(), rows
    page = next(text for path in built.glob("systems/alpha*.html") if "<h2" in (text := path.read_text()))
    description = page.partition('id="description"')[2]
    assert ">site</td>" in description and "Centre &lt;of&gt; Tests" in description


def test_a_build_without_a_change_reads_and_writes_nothing(
    submissions: Path, site: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(site)

    reader = Reader()
    monkeypatch.setattr(reading, "read_archive", reader)
    found = build(submissions, site, None, 0)
    assert (found.results, found.read) == (8, 0)
    assert reader.places == [BROKEN], "a failure is not kept"
    changed = {name for name, state in state_of(site).items() if state != before[name]}
    assert all("2026-11" in name or name == "index.html" for name in changed), "but for the reason of the broken one"


def test_an_archive_more_and_one_less(submissions: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    monkeypatch.setattr(reading, "read_archive", reader)
    # Moved to another edition: the same bytes are not read again.
    shutil.move(submissions / "2026-06" / "hostile.tar.gz", submissions / "moved.tar.gz")
    (submissions / "2026-11" / "bad.tar.gz").unlink()
    found = build(submissions, site, None, 0)
    assert (found.results, found.read) == (7, 0)
    assert reader.places == [BROKEN]
    assert "moved.tar.gz" in rows_of(site, "next")
    assert "2026-11/bad.tar.gz" not in rows_of(site, "2026-11")
    assert not [*(site / "systems").glob("bad-*")], "pages of what is gone are gone"
    assert len([*(site / "results").iterdir()]) == 6


def test_links_and_pipes_next_to_archives_are_not_read(submissions: Path, site: Path) -> None:
    """A submitter names them, and could hold up the build, or show a file of the list's machine."""
    secret = submissions.parent / "secret"
    secret.write_text('{"cooling": "secret"}')
    bad = submissions / "2026-11" / "bad.tar.gz"
    for end in (".heads", ".system.json"):
        bad.with_name(f"bad{end}").symlink_to(secret)
    found = build(submissions, site, None, 0)
    assert (found.results, found.read) == (8, 0), "heads that are not read change nothing"
    assert "the list has no heads of it" in (site / "results" / digest_of(bad) / "facts.json").read_text()
    assert not [page for page in site.glob("systems/*") if "secret" in page.read_text()]
    pipe, folder = submissions / "pipe", submissions / "2026-11"
    os.mkfifo(pipe)
    assert [is_plain(file) for file in (bad, bad.with_name("bad.heads"), pipe, folder, folder / "none")] == [
        True,
        *[False] * 4,
    ]


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_another_file_of_signers_is_asked_again(submissions: Path, site: Path) -> None:
    (submissions / "signers").write_text((submissions / "signers").read_text().replace("ada@", "bob@"))
    build(submissions, site, None, 0)
    assert rows_of(site, "2026-11")["2026-11/ada/alpha.tar.gz"]["signer"] == "bob@site.example"
    (submissions / "signers").write_text("")
    build(submissions, site, None, 0)
    assert {row["signer"] for row in rows_of(site, "2026-11").values()} == {None}


def test_a_withdrawn_archive_stays_visible_with_its_reason(submissions: Path, site: Path) -> None:
    with (submissions / "list.toml").open("a") as settings:
        settings.write(
            '[[withdrawn]]\narchive = "2026-11/ada/alpha.tar.gz"\non = 2026-12-01\nreason = "a <b>fault</b>"\n'
        )
    build(submissions, site, None, 0)
    assert "2026-11/ada/alpha.tar.gz" not in rows_of(site, "2026-11")
    assert "2026-06/ada/alpha.tar.gz" in rows_of(site, "2026-11"), "the result before counts again"
    assert "2026-12-01: a &lt;b&gt;fault" in (site / "editions/2026-11/score.html").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("titel = 'x'", "titel"),
        ("address = 'javascript:alert(1)'", "address"),
        ("title = ", "list.toml"),
        ("[[withdrawn]]\narchive = 'no.tar.gz'\non = 2026-01-01\nreason = 'x'", "not there: no.tar.gz"),
    ],
)
def test_wrong_settings_are_named_and_nothing_is_made(
    text: str, reason: str, submissions: Path, tmp_path: Path
) -> None:
    (submissions / "list.toml").write_text(text)
    with pytest.raises(UsageError, match=re.escape(reason)):
        build(submissions, tmp_path / "new", None, 0)
    assert not (tmp_path / "new").exists()


def test_a_folder_of_other_files_is_left_alone(submissions: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "results").mkdir(parents=True)
    (other / "results" / "precious").touch()
    for folder in (other, submissions, submissions.parent):
        with pytest.raises(UsageError):
            build(submissions, folder, None, 0)
    assert (other / "results" / "precious").exists()


def test_the_verb_names_what_it_did(submissions: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("list", "build", str(submissions), "--output", str(site), "--replay", "0")
    assert main(words) == 0
    said = capsys.readouterr()
    assert "3 editions, 8 results (0 read now), 3 not read" in said.out
    assert "not read: 2026-11/text.tar.gz: " in said.err
    assert main(["list", "build", str(submissions / "none"), "--output", str(site)]) == 2


def test_an_empty_folder_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "signers").touch()
    assert build(tmp_path, tmp_path / "site", None, 0) == Built(1, 0, 0, ())
    assert "No official system" in (tmp_path / "site" / "index.html").read_text()


def test_heads_that_the_list_received_date_a_result(submissions: Path, site: Path) -> None:
    """Also of an archive that the site has already."""
    archive = submissions / "2026-11" / "ada" / "alpha.tar.gz"
    place = "2026-11/ada/alpha.tar.gz"
    assert rows_of(site, "2026-11")[place]["dated"] is False
    with opened_run(archive) as root:
        lines = RunPaths(root).history_file("primary-1").read_bytes().splitlines()
        heads = [
            f"{format_utc(decode_record(line).time_ms + 2000)} head x: primary-1 record {number} sha256 {hash_of(line)}"
            for number, line in enumerate(lines)
        ]
    archive.with_name("alpha.heads").write_text("\n".join(heads))
    build(submissions, site, None, 0)
    assert {each: row["dated"] for each, row in rows_of(site, "2026-11").items() if row["dated"]} == {place: True}
    assert "not dated" in (site / "editions" / "2026-11" / "score.html").read_text()
