"""Text of other people on the terminal and in tables: shown as it is, never obeyed."""

import ast
import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aiperf.cli.console import PlainConsole
from aiperf.errors import ConfigError, EnvironmentNotReadyError, UsageError
from aiperf.untrusted.text import MESSAGE_BYTES, as_message, for_cell, for_json, for_terminal, is_printable, shown
from analysis.output.frames import csv_text
from analysis.results.ranking import Row
from analysis.verbs.results import COLUMNS
from tests.hardening.hostile import VALUES, answer, harmless
from tests.support.folders import ROOT
from tests.support.hand_made import HandMadeRun

EVIL = "[/bold]\x1b[2J\n=1+1\u202e"
UNASSIGNED = "\U00014647\U0001fae8\xa0\u0378"
"""Not assigned, assigned by Unicode 15, a space that does not break, not assigned."""
SEEN = r"[/bold]\x1b[2J\n=1+1\u202e"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a hostile name, and a replica with a hostile reason."""
    root = tmp_path_factory.mktemp("run") / "first"
    made = HandMadeRun(root, {"run.name": "=[/bold]"}).at(0).release(100, replicas=2).at(1).start_trial(1)
    return made.at(30).epoch(1, 1).at(40).lose(1, EVIL).end(100).paths.root


@pytest.mark.parametrize("verb", ["report", "status", "check", "verify"])
def test_a_hostile_reason_is_text(run: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    (run / "\x1b[2J\n[bold]").touch()
    said = answer(capsys, verb, str(run), *(["--replay", "0"] if verb == "check" else []))
    harmless(said.out + said.err)
    assert verb != "verify" or r"\x1b[2J [bold]: does not belong to the run" in said.out
    assert verb != "report" or r"[/bold]\x1b[2J" in said.out


def test_two_hostile_runs_are_compared(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "compare", str(run), str(run))
    assert said.code == 0
    harmless(said.out + said.err)


def test_tables_of_a_report_have_no_formulas(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer(capsys, "report", str(run), "--output", str(tmp_path))
    tables = list((tmp_path / "tables").glob("*.csv"))
    assert tables
    for table in tables:
        for row in csv.reader(io.StringIO(table.read_text())):
            for cell in row:
                harmless(cell)
                assert not cell.startswith(("=", "+", "@", "\t", "\r"))
    assert SEEN in (tmp_path / "tables" / "failures.csv").read_text()


def reports(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[Path]:
    """A report, and copies of it that are hostile in one place each."""
    document = json.loads(for_json(answer(capsys, "report", str(run), "--format", "json").out))
    changes: list[dict[str, Any]] = [
        {},
        {"name": EVIL},
        {"name": 1},
        {"configuration": []},
        {"configuration": {"run": 1}},
        {"system": {"0": 1}},
        {"system": {"0": {"host": EVIL, "accelerator": EVIL}}},
        {"started": EVIL},
        {"replicas": 10**30},
        {"score_ops": "x"},
        {"physics": []},
        {"statistics": 3},
        {"error": 10**400},
        {"violations": [{"rule": EVIL}]},
        {"energy": {}},
        {"accelerators": -1},
        {"rules_version": EVIL},
    ]
    files = []
    for number, change in enumerate(changes):
        file = folder / f"{number}.json"
        file.write_text(json.dumps({**document, **change}))
        files.append(file)
    for name, content in {"empty": b"", "no text": b"\xff", "deep": b"[" * 100_000, "long": b"9" * 9000}.items():
        files.append(folder / f"{name}.json")
        files[-1].write_bytes(content)
    return [*files, folder / "nothing", folder / ("x" * 300), folder / "\x1b[2J"]


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_hostile_result_costs_its_own_line_of_a_ranking(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    files = reports(run, tmp_path, capsys)
    said = answer(capsys, "rank", str(run), *map(str, files), "--format", form, "--html", str(tmp_path / "page.html"))
    assert said.code == 1, said
    harmless(said.out + said.err)
    assert "Traceback" not in said.err
    if form == "json":
        found = json.loads(said.out)
        assert len(found["rows"]) >= 2, "the run, and the report that nothing was changed in"
        assert len(found["rows"]) + len(found["problems"]) + len(found["same"]) == len(files) + 1
        assert all(len(problem) < 1000 for problem in found["problems"])
    elif form == "csv":
        assert "'=[/bold]" in {row["name"] for row in csv.DictReader(io.StringIO(said.out))}
    else:
        assert "=[/bold]" in said.out
        assert said.out.count("not read: ") > 4


def test_a_result_whose_row_cannot_be_shown_is_listed(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(row: Row) -> str:
        if row.run == "first":
            raise OverflowError("too large")
        return row.run

    monkeypatch.setitem(COLUMNS, "run", refuse)
    said = answer(capsys, "rank", str(run))
    assert said.code == 2
    assert f"{run}: OverflowError: too large" in said.err


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_trend_over_hostile_results(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    said = answer(capsys, "trend", str(run), *map(str, reports(run, tmp_path, capsys)), "--format", form)
    assert said.code == 1
    harmless(said.out + said.err)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1", "'=1"),
        ("+x", "'+x"),
        ("-x", "'-x"),
        ("@x", "'@x"),
        ("\tx", r"'\tx"),
        ("\r=1", r"'\r=1"),
        ("a=1", "a=1"),
        (-1.5, -1.5),
        ("-1.5", "-1.5"),
        ("-", "-"),
        (None, None),
        (3, 3),
        ("-1+1", "'-1+1"),
        ("a\nb", r"a\nb"),
    ],
)
def test_cells(value: object, cell: object) -> None:
    assert for_cell(value) == cell


def test_numbers_of_a_table_stay_numbers() -> None:
    table = pd.DataFrame({"=a": [-1.5, 2.0], "b": ["=x", None], "c": pd.array([1, None], dtype="Int64")})
    assert csv_text(table) == "'=a,b,c\n-1.5,'=x,1\n2.0,,\n"


def test_what_steers_a_terminal_is_shown() -> None:
    assert for_terminal("\x1b[1m\x9b\u202e\n\t\udcff\x7f") == r"\x1b[1m\x9b\u202e\n\t\udcff\x7f"
    assert for_terminal("Größe 🙂") == "Größe 🙂"
    document = json.dumps({"a": EVIL, "b": UNASSIGNED}, ensure_ascii=False)
    assert json.loads(for_json(document)) == {"a": EVIL, "b": UNASSIGNED}
    assert for_json(document).isprintable()


def test_what_is_shown_is_the_same_and_printable_in_every_python() -> None:
    # Python 3.11 has the characters of Unicode 14, Python 3.13 those of 15.1.
    every = list(map(chr, range(sys.maxunicode + 1)))
    assert for_terminal("".join(every)).isprintable()
    assert sum(map(is_printable, every)) == 144_516, "Python 3.11 takes this many for printable"
    assert for_terminal(UNASSIGNED) == r"\U00014647\U0001fae8\xa0\u0378"
    assert ast.literal_eval(f'"{for_terminal(UNASSIGNED)}"') == UNASSIGNED


def test_a_console_obeys_no_text() -> None:
    stream = io.StringIO()
    console = PlainConsole(file=stream, width=80, highlight=False)
    console.print("[bold]a[/bold] :smile: \x1b[2J", markup=True)
    assert stream.getvalue() == "[bold]a[/bold] :smile: \\x1b[2J\n"


def test_a_value_is_repeated_shortly() -> None:
    for value in VALUES:
        assert len(shown(value)) < 200
        harmless(shown(value))


def test_a_message_is_short_and_its_line_feeds_are_its_own() -> None:
    for error in (ConfigError(["x" * 9000] * 500), EnvironmentNotReadyError(["é" * 9000] * 50), UsageError("a\nb")):
        text = as_message(error.lines)
        assert len(text.encode()) <= MESSAGE_BYTES
        harmless(text)
    assert as_message(UsageError("a\nb").lines) == r"a\nb"
    assert as_message(["1"] * 5000).endswith("more")


def test_no_text_is_read_as_markup() -> None:
    """In addition to ruff's ban of rich's own consoles and texts."""
    found = []
    rooms = ("aiperf", "analysis", "dashboard", "primary", "referee", "replica", "slurm")
    for file in (file for room in rooms for file in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "from_markup":
                found.append(f"{file}: {node.lineno}")
            if isinstance(node, ast.keyword) and node.arg == "markup" and ast.unparse(node.value) != "False":
                found.append(f"{file}: {node.lineno}")
    assert found == []
