"""Documents from outside: YAML and spaces, inventories, answers of nodes, lists of hosts."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from aiperf.config.space import CHECKS, KNOWN, read_space
from aiperf.config.toml_text import as_toml, parse_toml, read_toml
from aiperf.errors import ConfigError, UsageError
from aiperf.untrusted.documents import read_json
from aiperf.untrusted.text import MESSAGE_BYTES, as_message
from primary.importing.experiment import read_experiment
from primary.importing.yaml_text import MOST_NODES, parse_yaml
from primary.nodes.probe import NodeAnswer
from slurm.configure import gres_conf, read_inventory, slurm_conf
from slurm.hostlists import expand
from tests.hardening.hostile import VALUES, answer, refused
from tests.support.fuzz import examples

EXAMPLES = examples(60)

ALIASES = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 28))])
MERGES = "\n".join(["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 28))])

YAMLS = {
    "aliases 27 deep": ALIASES,
    "merges 27 deep": MERGES,
    "an alias within itself": "&a [*a]",
    "deep lists": "[" * 50_000,
    "deep mappings": "? " * 20_000,
    "many values": "a: 1\n" * (MOST_NODES // 2 + 1),
    "long number": "maxTrialNum: 1" + "0" * 60_000,
    "number to the base of 60": "trialConcurrency: 1" + ":1" * 20_000,
    "hexadecimal number": "trialConcurrency: 0x" + "f" * 5000,
    "infinity": "trialConcurrency: .inf",
    "not a number": "experimentName: .nan\ntrialConcurrency: .nan",
    "a program": "a: !!python/object/apply:os.system [id]",
    "not a mapping": "- a",
    "nothing": "",
    "a truth value of no kind": "a: !!bool x",
    "keys that are lists": "? [a]\n: b",
    "too large": "#" * 70_000,
    "control characters": 'experimentName: "\\e[2J"',
    "half a character": 'experimentName: "\\ud800"',
    "a long value": "trialConcurrency: " + "x" * 60_000,
}


def test_keys_that_come_twice_are_refused_by_name(tmp_path: Path) -> None:
    space = tmp_path / "space.json"
    entry = '{"_type": "uniform", "_value": [0.1, 0.5]}'
    for text, key in (
        (f'{{"momentum": {entry}, "momentum": {entry}}}', "momentum"),
        (entry.replace('"_value"', '"_type": "choice", "_value"').join(('{"momentum": ', "}")), "_type"),
    ):
        space.write_text(text)
        with pytest.raises(ConfigError, match=f"the key '{key}' comes twice"):
            read_space(space)
    for text in ("a: 1\nb: 2\na: 3\n", "a: {a: 1, b: 2, a: 3}\n"):
        with pytest.raises(ValueError, match=r"line \d: the key 'a' comes twice; name it once"):
            parse_yaml(text)
    merged = parse_yaml("base: &base {a: 1, b: 2}\none: &one {<<: *base, a: 3}\ntwo: {<<: *one, b: 4}\n")
    assert (merged["one"], merged["two"]) == ({"a": 3, "b": 2}, {"a": 3, "b": 4})
    for text in ("yes: 1\ntrue: 2\n", "0x1: a\n1: b\n", "c:\n  <<: {a: 1, a: 2}\n"):
        with pytest.raises(ValueError, match=r"line 2: the key '(true|1|a)' comes twice; name it once"):
            parse_yaml(text)
    for text, line, key in (
        ("a = 1\na = 2\n", 2, "a"),
        ("[run]\nseed = 1\n[training]\n[run]\n", 4, "run"),
        ("x = {a = 1, b = 2, a = 3}\n", 1, "a"),
        ("[[t]]\na = 1\na = 2\n", 3, "a"),
        ("a = 1\na = '''\nb\n'''\n", 2, "a"),
    ):
        with pytest.raises(ValueError, match=f"^line {line}: the key '{key}' comes twice; name it once$"):
            parse_toml(text)
    assert parse_toml("[[t]]\na = 1\n[[t]]\na = 2\n") == {"t": [{"a": 1}, {"a": 2}]}


def test_documents_may_begin_with_a_byte_order_mark_and_end_lines_as_windows_does(tmp_path: Path) -> None:
    file = tmp_path / "document"
    file.write_bytes(b"\xef\xbb\xbf[run]\r\nseed = 1\r\n")
    assert read_toml(file) == {"run": {"seed": 1}}
    file.write_bytes(b'\xef\xbb\xbf{"a":\r\n1}')
    assert read_json(file, 100) == {"a": 1}


def test_quantised_values_stay_within_their_bounds_and_open_bounds_are_said(tmp_path: Path) -> None:
    space = tmp_path / "space.json"
    space.write_text('{"momentum": {"_type": "quniform", "_value": [0, 0.99, 0.25]}}')
    assert read_space(space)[0].values == (0, 0.99, 0.25)
    space.write_text('{"momentum": {"_type": "quniform", "_value": [0, 1, 0.25]}}')
    with pytest.raises(ConfigError, match=r"found 1\.0; allowed is 0 to below 1"):
        read_space(space)


@pytest.mark.parametrize("name", YAMLS)
def test_experiments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = tmp_path / "config.yml"
    file.write_text(YAMLS[name])
    refused_or_empty(answer(capsys, "config", "import", str(file)), name)


def refused_or_empty(said: Any, name: str) -> None:
    if name == "nothing" or said.code:
        refused(said)
    else:
        pytest.fail(f"{name} was taken: {said.out}")


@pytest.mark.parametrize("name", ["🙂 Größe", 'a\\"b', "tab", "'x'", "[bold]"])
def test_an_imported_experiment_is_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file, made = tmp_path / "config.yml", tmp_path / "run.toml"
    file.write_text(yaml.safe_dump({"experimentName": name, "maxExecDuration": "2h", "trialConcurrency": 3}))
    said = answer(capsys, "config", "import", str(file), "--output", str(made))
    assert said.code == 0, said
    assert parse_toml(made.read_text())["run"] == {"name": name, "duration": "2h", "replicas": 3}
    assert answer(capsys, "config", "show", str(made)).code == 0


@settings(max_examples=EXAMPLES, deadline=None)
@given(text=st.text(max_size=300) | st.text(alphabet="ab:- \n[]{}&*!|>'\"?,#%<1.", max_size=300))
def test_any_yaml(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yml"
    file.write_text(text, errors="replace")
    try:
        found = read_experiment(file, None)
    except UsageError as error:
        assert len(as_message(error.lines).encode()) <= MESSAGE_BYTES
        return
    parse_toml(as_toml(found.settings))


def test_yaml_has_only_what_json_has() -> None:
    found = parse_yaml("a: 2001-01-01\nb: !!binary eA==\nc: !!set {x}\nd: 12\ne: &e [1]\nf: *e")
    assert found == {"a": "2001-01-01", "b": "eA==", "c": {"x": None}, "d": 12, "e": [1], "f": [1]}


SPACES = [
    ("momentum", "choice", ["text"]),
    ("learning_rate", "choice", [-5]),
    ("learning_rate", "uniform", [-5, 1]),
    ("momentum", "uniform", [0, 2]),
    ("momentum", "uniform", [float("nan"), float("nan")]),
    ("momentum", "uniform", [0, float("inf")]),
    ("learning_rate", "normal", [0, 1]),
    ("batch_size", "choice", [10**30]),
    ("label_smoothing", "choice", ["0.1"]),
    ("learning_rate", "qloguniform", [1e-9, 1, 1e-300]),
    ("momentum", "quniform", [0, 1, 0.25]),
    ("learning_rate", ["x"], [1]),
    ("learning_rate", {"a": 1}, [1]),
    ("learning_rate", "x" * 9000, [1]),
    ("kernel_size", "randint", [0, 5]),
    ("momentum", "lognormal", [0, 9]),
    ("momentum", "choice", list(range(5000))),
    ("x" * 9000, "choice", [1]),
    ("momentum", "choice", [10**400]),
]


@pytest.mark.parametrize(("name", "kind", "values"), SPACES)
def test_spaces_that_cannot_work(tmp_path: Path, name: str, kind: Any, values: list[Any]) -> None:
    file = tmp_path / "space.json"
    file.write_text(json.dumps({name: {"_type": kind, "_value": values}}))
    with pytest.raises(ConfigError) as caught:
        read_space(file)
    assert len(as_message(caught.value.lines).encode()) <= MESSAGE_BYTES


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("learning_rate", "loguniform", [1e-4, 1]),
        ("learning_rate", "lognormal", [-3, 0.5]),
        ("momentum", "choice", [0, 0.9]),
        ("label_smoothing", "normal", [0.1, 0.01]),
        ("kernel_size", "randint", [1, 6]),
    ],
)
def test_spaces_that_work(tmp_path: Path, name: str, kind: str, values: list[Any]) -> None:
    file = tmp_path / "space.json"
    file.write_text(json.dumps({name: {"_type": kind, "_value": values}}))
    assert read_space(file)[0].kind == kind


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
NUMBERS = st.integers() | st.floats() | st.text(max_size=3)
ENTRY = st.fixed_dictionaries({"_type": st.sampled_from([*CHECKS]), "_value": st.lists(NUMBERS, max_size=4)})


@settings(max_examples=EXAMPLES, deadline=None)
@given(document=ANY | st.dictionaries(st.sampled_from(KNOWN) | st.text(max_size=5), ENTRY | ANY, max_size=3))
def test_any_space(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps(document))
    try:
        assert read_space(file)
    except ConfigError as error:
        assert len(as_message(error.lines).encode()) <= MESSAGE_BYTES


FACTS: dict[str, Any] = {
    "host": "n1.site",
    "address": "10.0.0.1",
    "sockets": 2,
    "cores_per_socket": 8,
    "threads_per_core": 2,
    "memory_bytes": 2**36,
    "accelerators": [{"name": "NVIDIA H100", "memory_bytes": 2**36, "driver": "1"}],
}


@pytest.mark.parametrize("key", FACTS)
def test_no_node_writes_slurm_conf(key: str) -> None:
    lines = len((slurm_conf(read_inventory({"nodes": {"a": FACTS}}), "c", "head")).splitlines())
    refusals = 0
    for value in VALUES:
        try:
            nodes = read_inventory({"nodes": {"a": {**FACTS, key: value}}})
        except UsageError as error:
            refusals += 1
            assert len(as_message(error.lines).encode()) <= MESSAGE_BYTES
            continue
        assert len(slurm_conf(nodes, "c", "head").splitlines()) <= lines
        assert len(gres_conf(nodes).splitlines()) <= 2
    assert refusals > len(VALUES) / 2


@pytest.mark.parametrize("name", ["n1\nProlog=/evil", "n1 Prolog=/evil", "n[1-3]", "", "-n1", "n1,n2", "n1#"])
@pytest.mark.parametrize("place", ["host", "address", "--controller", "--cluster"])
def test_nothing_is_written_for_a_name_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, name: str
) -> None:
    inventory, folder = tmp_path / "inventory.json", tmp_path / "etc"
    inventory.write_text(json.dumps({"nodes": {"a": FACTS if place.startswith("-") else {**FACTS, place: name}}}))
    options = {"--controller": "head", "--cluster": "c"} | ({place: name} if place.startswith("-") else {})
    words = [f"{option}={value}" for option, value in options.items()]
    refused(answer(capsys, "slurm", "configure", str(inventory), "--output", str(folder), *words))
    assert not folder.exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "1", '{"nodes": []}', '{"nodes": {"a": 1}}', "[" * 100_000, "9" * 9000, "\0"]
)
def test_what_is_no_inventory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(text)
    refused(
        answer(capsys, "slurm", "configure", str(inventory), "--output", str(tmp_path / "etc"), "--controller", "n1")
    )


@pytest.mark.parametrize("host", [".", "..", "-x", "a b", "a\nb", "", "a" * 2000, "\udcff", "n[0-60000][0-60000]",
                                  "n" + "[1]" * 2000, "[", "n[1-" + "9" * 5000 + "]", "n[٣]"])  # fmt: skip
def test_hosts_that_are_none_are_refused(capsys: pytest.CaptureFixture[str], host: str) -> None:
    said = answer(capsys, "nodes", "probe", "--ssh-config", "/none", "--", host)
    if host == "":
        assert said.out == ""
        return
    refused(said)


def test_a_list_of_hosts_has_a_limit_before_it_is_made() -> None:
    assert len(expand("n[0-255][0-255]")) == 65_536
    with pytest.raises(UsageError, match="too many hosts"):
        expand("n[0-65535][0-65535][0-65535]")


ANSWER = {
    **FACTS,
    "os": "Linux",
    "network": {"eth0": 1000},
    "python": "3.11",
    "packages": {"keras": None},
    "slurm": None,
    "mpi": None,
    "shared": None,
    "data": None,
    "cpu_model": "x",
    "cpu_count": 4,
    "utc_ms": 1,
    "complaints": ["nvidia-smi: no"],
}


WRONG: tuple[object, ...] = ("a\nb", "\x1b", 10**30, [[]], {"\n": 1}, True)


def test_an_answer_of_a_node_is_of_the_types_that_are_shown() -> None:
    described = {key: value for key, value in ANSWER.items() if key != "address"}
    assert NodeAnswer.model_validate_json(json.dumps(described)).model_dump() == described
    for key in described:
        for value in WRONG:
            with pytest.raises(ValidationError):
                NodeAnswer.model_validate({**described, key: value})
