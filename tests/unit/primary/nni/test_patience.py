"""What NNI's manager writes, on storage that refuses for a while."""

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from primary.nni.portal import PATIENT, POLICY

pytestmark = pytest.mark.skipif(find_spec("nni") is None, reason="nni is not installed")

REFUSING = """
const fs = require('node:fs');
let left = 3;
const refused = () => (left -= 1) >= 0 && Object.assign(new Error('refused'), { code: process.argv[2] });
const { open } = fs;
const { mkdir, writeFile } = fs.promises;
fs.open = (...words) => { const error = refused(); return error ? words.pop()(error) : open(...words); };
const often = (action) => async (...words) => {
  const error = refused();
  if (error) throw error;
  return action(...words);
};
fs.promises.writeFile = often(writeFile);
fs.promises.mkdir = often(mkdir);
require(process.argv[1]);
const folder = process.argv[3];
"""
"""Operations that fail three times with the caller's error, then the program under test."""

SQLITE = """
require(process.argv[1]);
const sqlite3 = require('sqlite3');
const database = new sqlite3.Database(`${process.argv[3]}/nni.sqlite`);
database.serialize(() => database.exec('create table t (text text)', () => {
  database.exec('pragma max_page_count = 2', () => {
    setTimeout(() => database.exec('pragma max_page_count = 1000'), 300);
    database.run('insert into t values (?)', ['x'.repeat(20000)], (error) => {
      database.all('select length(text) as length from t', (_, rows) => console.log(JSON.stringify([error, rows])));
    });
  });
}));
"""


def manager(program: str, folder: Path, error: str = "ENOSPC", seconds: float = 30.0) -> Any:
    """What a program prints in the node of NNI's manager, as JSON."""
    spec = find_spec("nni_node")
    assert spec is not None
    assert spec.submodule_search_locations
    home = Path(spec.submodule_search_locations[0])
    done = subprocess.run(
        [home / "node", "-e", program, str(PATIENT), error, str(folder)],
        cwd=home,
        capture_output=True,
        text=True,
        env={**os.environ, POLICY: json.dumps({"seconds": seconds, "errors": ["ENOSPC"]})},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "action",
    [
        "fs.promises.mkdir(`${folder}/new`).then(() => null, (error) => error.code)",
        "fs.promises.writeFile(`${folder}/new`, 'text').then(() => null, (error) => error.code)",
        "new Promise((tell) => fs.createWriteStream(`${folder}/new`).on('open', () => tell(null))"
        ".on('error', (error) => tell(error.code)))",
    ],
    ids=["folder", "file", "stream"],
)
def test_files_wait_for_as_long_as_the_policy_says(action: str, tmp_path: Path) -> None:
    program = f"{REFUSING}({action}).then((code) => console.log(JSON.stringify(code)));"
    assert manager(program, tmp_path) is None
    assert (tmp_path / "new").exists()
    other = tmp_path / "other"
    other.mkdir()
    assert manager(program, other, error="ENOENT") == "ENOENT", "it does not pass"
    assert manager(program, other, seconds=0) == "ENOSPC"
    assert not (other / "new").exists()


def test_a_line_of_the_log_is_lost_and_nothing_else(tmp_path: Path) -> None:
    program = """
    require(process.argv[1]);
    const fs = require('node:fs');
    const write = require('node:util').promisify(fs.write);
    const full = fs.openSync('/dev/full', 'w');
    const good = fs.openSync(`${process.argv[3]}/log`, 'a');
    const codes = [];
    const tried = (...words) => write(...words).then(() => codes.push(null), (error) => codes.push(error.code));
    tried(full, 'line\\n').then(() => tried(good, 'line\\n')).then(() => tried(full, Buffer.from('data')))
      .then(() => console.log(JSON.stringify(codes)));
    """
    assert manager(program, tmp_path) == [None, None, "ENOSPC"]
    assert (tmp_path / "log").read_text() == "line\n"


def test_a_record_of_the_database_waits_for_space(tmp_path: Path) -> None:
    assert manager(SQLITE, tmp_path) == [None, [{"length": 20000}]]
    (tmp_path / "nni.sqlite").unlink()
    error, rows = manager(SQLITE, tmp_path, seconds=0)
    assert (error["code"], rows) == ("SQLITE_FULL", [])
