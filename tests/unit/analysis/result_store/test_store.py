"""A store of results: what is kept, once, whatever else happens to the file."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import aiperf
from aiperf.__main__ import main
from aiperf.errors import AiperfError, EnvironmentNotReadyError, RunDirectoryError
from aiperf.screening.measures import MEASURES
from analysis.output.page.vocabulary import PHASES
from analysis.results.result_store import store
from analysis.results.result_store.facts import (
    SHARES,
    AcceptanceFacts,
    DeviceFacts,
    Facts,
    RunFacts,
    read_facts,
    run_facts,
    screening_facts,
)
from analysis.results.result_store.store import add, load_store, open_store, read_store
from analysis.results.result_store.trend import trend
from tests.support.folders import ROOT
from tests.unit.analysis.result_store.made import result, screening


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def put(path: Path, *facts: Facts) -> list[str]:
    with open_store(path, write=True) as connection:
        return [add(connection, each) for each in facts]


def run_of(day: int, score: float | None = 100.0) -> Facts:
    return Facts(run_facts(result(day, score)))


@pytest.fixture(scope="module")
def screenings(tmp_path_factory: pytest.TempPathFactory) -> list[Facts]:
    made = (screening(tmp_path_factory.mktemp("s"), day, {1: {("gpu5", "triad"): 0.9}}, lost=2) for day in range(2))
    return [screening_facts(Path("screened"), outcome) for outcome in made]


ACCEPTANCE = Facts(
    AcceptanceFacts(
        identity="a",
        origin="a.json",
        run=None,
        made=None,
        path="r",
        baseline="b",
        accepted=False,
        criteria=2,
        failed="score_ops",
    )
)


def test_what_is_put_in_comes_out(path: Path, screenings: list[Facts]) -> None:
    every = [run_of(0), run_of(1, None), *screenings, ACCEPTANCE]
    assert put(path, *every) == ["added"] * 5
    assert read_store(path) == [every[0], every[1], *screenings, ACCEPTANCE]


@pytest.mark.parametrize("by", ["system", "node"])
def test_a_trend_of_a_store_is_that_of_its_results(path: Path, screenings: list[Facts], by: str) -> None:
    every = [*(run_of(day, 100.0 - 8 * day) for day in range(5)), *screenings, ACCEPTANCE]
    put(path, *reversed(every))
    found = trend(read_store(path), "node" if by == "node" else "system")
    assert found == trend(every, "node" if by == "node" else "system")
    assert any(row.regressions for each in found for row in each.rows) == (by == "system")


def test_a_result_is_one_row_however_often_it_is_added(path: Path, screenings: list[Facts]) -> None:
    moved = Facts(msgspec.structs.replace(run_of(0).row, origin="elsewhere"))
    assert put(path, run_of(0), run_of(0), moved, screenings[0], screenings[0]) == [
        "added",
        "known",
        "known",
        "added",
        "known",
    ]
    assert {name: len(table) for name, table in load_store(path).items()} == {
        "runs": 1,
        "screenings": 1,
        "acceptances": 0,
        "devices": len(screenings[0].devices),
    }


def test_a_store_without_the_newest_columns_is_read_and_gets_them(path: Path, screenings: list[Facts]) -> None:
    first, second, *_ = screenings
    with open_store(path, write=True) as connection:
        add(connection, first)
        for table, column in (("devices", "inside_latency"), ("runs", "error")):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    assert read_store(path) == [first]
    with open_store(path, write=True) as connection:
        add(connection, second)
    assert read_store(path) == [first, second]
    assert "inside_latency" in load_store(path)["devices"]


def test_a_run_that_continued_is_brought_up_to_date_and_a_damaged_copy_is_not_taken(path: Path) -> None:
    assert put(path, run_of(0, None)) == ["added"]
    assert put(path, run_of(0, 50.0)) == ["changed"]
    assert put(path, run_of(0, None)) == ["kept"]
    (found,) = read_store(path)
    assert isinstance(found.row, RunFacts)
    assert (found.row.score_ops, found.row.status) == (50.0, "unofficial")


def test_columns_are_those_of_the_vocabulary() -> None:
    assert tuple(f"share_{phase}" for phase in PHASES) == SHARES
    assert DeviceFacts.__struct_fields__[5:] == tuple(MEASURES)


def test_numbers_that_sqlite_does_not_have_are_kept_as_near_as_it_can(path: Path) -> None:
    put(path, Facts(msgspec.structs.replace(run_of(0).row, nodes=2**70, error=float("inf"))))
    (found,) = read_store(path)
    assert isinstance(found.row, RunFacts)
    assert (found.row.nodes, found.row.error) == (2**63 - 1, float("inf"))


def test_frames_have_every_column(path: Path, screenings: list[Facts]) -> None:
    put(path, run_of(3), *screenings)
    found = aiperf.load_store(str(path))
    assert [*found["runs"].columns] == [*RunFacts.__struct_fields__]
    assert found["devices"].query("node == 'n001' and device == 'gpu5'")["triad"].max() < 2.7e12


# Files that are no store, and stores that others damaged.


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def claimed(path: Path) -> None:
    execute(path, "PRAGMA application_id = 7")


def foreign(path: Path) -> None:
    execute(path, "CREATE TABLE precious (x)")


def later(path: Path) -> None:
    put(path, run_of(0))
    execute(path, f"PRAGMA user_version = {store.VERSION + 1}")


def torn(path: Path) -> None:
    put(path, *(run_of(day) for day in range(40)))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def overwritten(path: Path) -> None:
    put(path, *(run_of(day) for day in range(40)))
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 3 + 200] = b"\xff" * 200
    path.write_bytes(bytes(data))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no database": (lambda path: path.write_text("precious text"), "is no store of results, or is damaged"),
    "another program's": (foreign, "is a database of another program"),
    "another program's without tables": (claimed, "is a database of another program"),
    "of a later version": (later, f"of version {store.VERSION + 1}, and this AIPerf reads version {store.VERSION}"),
    "torn": (torn, "is no store of results, or is damaged"),
    "overwritten": (overwritten, "is no store of results, or is damaged"),
    "a folder": (lambda path: path.mkdir(), "is no file, and a store of results is one"),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("write", [False, True])
def test_a_file_that_is_no_whole_store_is_refused_and_left_as_it_is(path: Path, name: str, write: bool) -> None:
    damage, says = DAMAGES[name]
    damage(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(RunDirectoryError, match=r"results\.sqlite") as found, open_store(path, write):
        pass
    assert says in str(found.value)
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert [each.name for each in path.parent.iterdir()] == [path.name], "no journal is left"


def test_values_of_other_types_are_damage(path: Path) -> None:
    put(path, run_of(0))
    execute(path, "UPDATE runs SET score_ops = 'much'")
    with pytest.raises(RunDirectoryError, match="is damaged"):
        read_store(path)


def test_a_store_that_is_not_there_is_only_made_to_be_written(path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="there is no store of results"):
        read_store(path)
    assert not path.exists()
    with pytest.raises(RunDirectoryError, match="there is no folder"), open_store(path / "x" / "y", write=True):
        pass
    path.touch()
    with pytest.raises(RunDirectoryError, match="is empty and has no results; add some with: aiperf store add"):
        read_store(path)
    assert not path.stat().st_size
    assert put(path, run_of(0)) == ["added"], "an empty file may become one"


def test_a_store_that_is_locked_is_an_error_of_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(path, run_of(0))
    monkeypatch.setattr(store, "PATIENCE_S", 0.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(EnvironmentNotReadyError, match="locked"):
            put(path, run_of(1))
        other.execute("ROLLBACK")
    assert len(read_store(path)) == 1


def test_an_error_in_the_middle_of_a_result_leaves_none_of_it(
    path: Path, screenings: list[Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(path, run_of(0))
    insert = store._insert

    def fails(connection: sqlite3.Connection, table: str, row: object) -> None:
        if table == "devices":
            raise KeyboardInterrupt
        insert(connection, table, row)

    monkeypatch.setattr(store, "_insert", fails)
    with pytest.raises(KeyboardInterrupt):
        put(path, screenings[0])
    assert read_store(path) == [run_of(0)]


WRITER = """
import sys
from pathlib import Path
from analysis.results.result_store.store import add, open_store
from tests.unit.analysis.result_store.made import result
from analysis.results.result_store.facts import Facts, run_facts
facts = [Facts(run_facts(result(day))) for day in map(int, sys.argv[2:])]
print("ready", flush=True)
sys.stdin.readline()
for each in facts:
    with open_store(Path(sys.argv[1]), write=True) as connection:
        add(connection, each)
"""


def test_two_writers_at_once_lose_nothing_and_the_file_is_made_once(path: Path) -> None:
    days = [[str(day) for day in range(start, 60, 2)] for start in (0, 1)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, *own],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for own in days
    ]
    for each in writers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in writers:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    for each in writers:
        each.communicate()
        assert each.returncode == 0
    assert len(read_store(path)) == 60


# The verbs.


def test_the_verb_adds_lists_and_names_what_it_cannot_read(
    tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    report.write_text(result(0).report.model_dump_json())
    nothing = tmp_path / "nothing.json"
    nothing.write_text("{}")
    words = ["store", "add", str(report), str(nothing), "--store", str(path)]
    assert main(words) == 1
    said = capsys.readouterr()
    assert "report.json: added" in said.out
    assert "1 result added" in said.out
    assert "not read: " in said.err
    assert "nothing.json" in said.err
    assert main([*words, "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["done"] for each in document["results"]] == ["known"]
    assert len(document["problems"]) == 1
    assert main(["store", "list", "--store", str(path), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert (row["kind"], row["status"], row["origin"]) == ("run", "unverified", str(report))
    assert main(["store", "list", "--store", str(path)]) == 0
    assert "unverified" in capsys.readouterr().out
    assert main(["trend", "--store", str(path), str(report), "--format", "json"]) == 0
    assert [len(each["rows"]) for each in json.loads(capsys.readouterr().out)["series"]] == [1], "it counts once"


def test_the_verb_says_where_it_made_a_store_and_does_not_take_a_store_for_a_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.json").write_text(result(0).report.model_dump_json())
    assert main(["store", "add", "other.sqlite", "report.json"]) == 2
    assert "name it as one: --store other.sqlite" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]
    assert main(["store", "add", "report.json"]) == 0
    assert f"{tmp_path}/results.sqlite (a new store): 1 result added" in capsys.readouterr().out
    assert main(["store", "add", "report.json"]) == 0
    assert f"{tmp_path}/results.sqlite: 0 results added" in capsys.readouterr().out
    assert main(["store", "add", "results.sqlite", "report.json", "--store", "third.sqlite"]) == 2
    assert not Path("third.sqlite").exists()


def test_an_acceptance_is_read_by_its_own_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, file = tmp_path / "report.json", tmp_path / "accept.json"
    report.write_text(result(0).report.model_dump_json())
    limits = tmp_path / "limits.toml"
    limits.write_text("[at_least]\nscore_ops = 1e30\n[at_most]\nerror = 0.9\n")
    assert main(["accept", str(report), "--baseline", str(limits), "--format", "json"]) == 4
    file.write_text(capsys.readouterr().out)
    row, run = read_facts(file).row, read_facts(report).row
    assert isinstance(row, AcceptanceFacts)
    assert (row.run, row.accepted, row.criteria, row.failed) == (run.identity, False, 2, "score_ops")
    assert row.at is not None
    (series,) = trend([read_facts(file), read_facts(report)])
    assert [each.accepted for each in series.rows] == [False]
    file.write_text('{"criteria": 3}')
    with pytest.raises(AiperfError, match="is not an acceptance of aiperf"):
        read_facts(file)
