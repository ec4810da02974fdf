"""A store of results: one SQLite file with a table for each kind of facts.

The tables are the classes of `analysis.results.result_store.facts`, their columns the fields. The
file says that it is a store (application_id) and the version of its tables (user_version); nothing
else is written to. Each result is a transaction of its own, so a command that ends early leaves
whole results, and two writers wait for each other. A result that is added again is the same row.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pandas as pd

from aiperf.errors import EnvironmentNotReadyError, RunDirectoryError
from aiperf.untrusted.reading import reason_of
from analysis.results.result_store.facts import AcceptanceFacts, DeviceFacts, Facts, RunFacts, ScreeningFacts

try:
    import sqlite3
except ImportError as missing:  # Python can be built without it
    raise EnvironmentNotReadyError([f"this Python has no SQLite, which stores of results need: {missing}"]) from missing

VERSION = 1
"""Version of the tables."""

APPLICATION = 0x61697066
"""`aipf` in ASCII: what the file is, for the programs that look (file, sqlite3)."""

BEGINNING = b"SQLite format 3\0"
"""First bytes of every database of SQLite (https://www.sqlite.org/fileformat.html)."""

SUFFIXES = (".sqlite", ".sqlite3", ".db")
"""Ends of the names that people give to databases."""

PATIENCE_S = 60.0
"""Longest wait for other writers, each of which needs milliseconds for a result."""

LARGEST = 2**63 - 1
"""Largest whole number of SQLite."""

TABLES: dict[str, Any] = {
    "runs": RunFacts,
    "screenings": ScreeningFacts,
    "acceptances": AcceptanceFacts,
    "devices": DeviceFacts,
}
"""Tables and the classes of their rows."""

RESULTS = {kind: table for table, kind in TABLES.items() if kind is not DeviceFacts}

KEYS = {"devices": "PRIMARY KEY (screening, node, device, kind)"}
"""Keys of tables; of all others the identity of the result."""

Added = Literal["added", "changed", "known", "kept"]
"""The effect of adding a result: `known`: the same row was there; `kept`: a better copy was."""

WITHOUT_RESULT = ("invalid", "running")
"""Statuses of runs that a store does not put in the place of a run with a result."""


@contextmanager
def open_store(path: Path, write: bool = False) -> Iterator[sqlite3.Connection]:
    """A store, which is made if it is not there and is to be written.

    Raises RunDirectoryError if the file is damaged, foreign or of another version, and
    EnvironmentNotReadyError if it cannot be read, written or locked; nothing is changed then.
    """
    with _explained(path):
        _look(path, write)
        # Not `ro` for reading: the next program that opens it undoes what a killed writer left.
        uri = f"{path.absolute().as_uri()}?mode={'rwc' if write else 'rw'}"
        # Level None: Python begins no transaction on its own.
        with closing(sqlite3.connect(uri, uri=True, timeout=PATIENCE_S, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            if write:
                _prepare(connection, path)
            else:
                _check(connection, path)
                # The mode allows the undoing of what was left; this refuses everything else that
                # writes.
                connection.execute("PRAGMA query_only = 1")
            yield connection


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Errors of SQLite in the words of this program."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_FORMAT")):
            raise _damaged(path, reason_of(error)) from error
        if name.startswith("SQLITE_BUSY"):
            raise EnvironmentNotReadyError(
                [f"{path}: other programs have kept it locked for {PATIENCE_S:.0f} s; nothing was changed"]
            ) from error
        raise EnvironmentNotReadyError([f"{path}: {reason_of(error)}; nothing was changed"]) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise EnvironmentNotReadyError([f"{path}: {reason_of(error)}"]) from error


def _damaged(path: Path, reason: str) -> RunDirectoryError:
    return RunDirectoryError(f"{path}: is no store of results, or is damaged: {reason}. It was left as it is")


def _look(path: Path, write: bool) -> None:
    """Raises RunDirectoryError unless it is a file, or can become one."""
    exists = path.exists()
    if exists and not path.is_file():
        raise RunDirectoryError(f"{path}: is no file, and a store of results is one")
    if not exists and not write:
        raise RunDirectoryError(f"{path}: there is no store of results; make one with: aiperf store add RUN")
    if not exists and not path.parent.is_dir():
        raise RunDirectoryError(f"{path}: there is no folder {path.parent}")
    if exists and not write and not path.stat().st_size:
        raise RunDirectoryError(f"{path}: is empty and has no results; add some with: aiperf store add")


def is_store(path: Path) -> bool:
    """True for a database, by its first bytes or, if it is not there yet, by its name."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(BEGINNING)) == BEGINNING
    except FileNotFoundError:
        return path.suffix in SUFFIXES
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raises RunDirectoryError if it is not a store of this version, or has damaged pages."""
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        raise RunDirectoryError(
            f"{path}: is a database of another program, not a store of results; it was left as it is"
        )
    if version != VERSION:
        raise RunDirectoryError(f"{path}: its tables are of version {version}, and this AIPerf reads version {VERSION}")
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise _damaged(path, found)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of an empty file; two programs may do so at once."""
    with _transaction(connection):
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        # A database of another program says so before it has a table.
        if tables or connection.execute("PRAGMA application_id").fetchone()[0]:
            _check(connection, path)
            _widen(connection)
            return
        for table, kind in TABLES.items():
            columns = [f"{name} {declared}" for name, declared in columns_of(kind).items()]
            connection.execute(f"CREATE TABLE {table} ({', '.join([*columns, KEYS.get(table, KEY)])})")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _widen(connection: sqlite3.Connection) -> None:
    """Add the columns that a store of an earlier AIPerf lacks, such as those of new measures."""
    for table, kind in TABLES.items():
        there = {column["name"] for column in connection.execute(f"PRAGMA table_info({table})")}
        for name, declared in columns_of(kind).items():
            if name not in there:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {declared}")


KEY = "PRIMARY KEY (identity)"


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, while no other program writes."""
    # The lock for writing at once: of two programs that have read and then want to write, SQLite
    # refuses one without waiting.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def columns_of(kind: Any) -> dict[str, str]:
    """The columns of a class of rows, and their types in SQL."""
    found = {}
    for field in msgspec.structs.fields(kind):
        types = [field.type] if isinstance(field.type, type) else [*field.type.__args__]
        name = next({str: "TEXT", float: "REAL"}.get(each, "INTEGER") for each in types if each is not type(None))
        found[field.name] = name + ("" if type(None) in types else " NOT NULL")
    return found


def add(connection: sqlite3.Connection, facts: Facts) -> Added:
    """Add a result, or bring its row up to date."""
    row, table = facts.row, RESULTS[type(facts.row)]
    with _transaction(connection):
        found = connection.execute(f"SELECT * FROM {table} WHERE identity = ?", (row.identity,)).fetchone()  # noqa: S608
        known = _row(type(row), found) if found is not None else None
        if known is not None and msgspec.structs.replace(known, origin=row.origin) == row:
            return "known"
        if isinstance(known, RunFacts) and isinstance(row, RunFacts) and _is_better(known, row):
            return "kept"
        _insert(connection, table, row)
        for device in facts.devices:
            _insert(connection, "devices", device)
    return "changed" if known is not None else "added"


def _is_better(known: RunFacts, other: RunFacts) -> bool:
    """True if a run has a result, and its other copy none."""
    return other.status in WITHOUT_RESULT and known.status not in WITHOUT_RESULT


def _insert(connection: sqlite3.Connection, table: str, row: Any) -> None:
    values = {name: _stored(value) for name, value in msgspec.structs.asdict(row).items()}
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    # By name: a column that was added to a store later stands at its end.
    connection.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", [*values.values()])  # noqa: S608


def _stored(value: object) -> object:
    """A value as SQLite can hold it."""
    return max(-LARGEST, min(LARGEST, value)) if isinstance(value, int) else value


def _row(kind: type[Any], found: sqlite3.Row) -> Any:
    """The row of a class. Raises RunDirectoryError if a value is of another type."""
    # Not strict, since SQLite has 0 and 1 for the truth values.
    return msgspec.convert(dict(found), kind, strict=False)


def results_of(connection: sqlite3.Connection, path: Path) -> Iterator[Facts]:
    """All results of a store, runs first, each kind in order of time. Raises RunDirectoryError."""
    try:
        devices = defaultdict(list)
        for found in connection.execute("SELECT * FROM devices ORDER BY rowid"):
            devices[found["screening"]].append(_row(DeviceFacts, found))
        for kind, table in RESULTS.items():
            for found in connection.execute(f"SELECT * FROM {table} ORDER BY made, rowid"):  # noqa: S608
                row = _row(kind, found)
                yield Facts(row, tuple(devices.get(row.identity, ())))
    except msgspec.ValidationError as error:
        raise _damaged(path, reason_of(error)) from None


def read_store(path: Path) -> list[Facts]:
    """All results of the store in a file. Raises as `open_store` does."""
    with open_store(path) as connection:
        return [*results_of(connection, path)]


def load_store(path: str | Path) -> dict[str, pd.DataFrame]:
    """The tables of a store as frames, by name: runs, screenings, acceptances, devices.

    Raises RunDirectoryError if the file is not a store of results.
    """
    with open_store(Path(path)) as connection:
        # pandas expects tuples.
        connection.row_factory = None
        return {table: pd.read_sql_query(f"SELECT * FROM {table}", connection) for table in TABLES}  # noqa: S608
