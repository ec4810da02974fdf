"""Settings from outside: refused in a short message that names them, or harmless."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiperf.config.settings import RunConfig, load_config, parse_override
from aiperf.config.toml_text import as_toml, parse_toml
from aiperf.config.wording import keys_of
from aiperf.errors import ConfigError, UsageError
from aiperf.untrusted.text import MESSAGE_BYTES, as_message, has_control
from slurm.script import ScriptRequest, job_script
from tests.hardening.hostile import CORPUS, VALUES, answer, refused
from tests.support.fuzz import examples

EXAMPLES = examples(60)

KEYS = list(keys_of(RunConfig))
LIMITED = [key for key in KEYS if key != "search.space"]  # it names a file


def leaves(value: object) -> Iterator[Any]:
    """Every text and number in a value."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def config_or_refusal(key: str, value: object) -> RunConfig | None:
    """The configuration with one setting; None if it was refused as it should be."""
    try:
        return load_config(overrides={key: value})
    except ConfigError as error:
        assert len(as_message(error.lines).encode()) <= MESSAGE_BYTES
        for problem in error.problems:
            assert problem.startswith(f"{key}: ")
            assert len(problem) < 1000
        return None


def sound(config: RunConfig) -> None:
    """Assert that nothing in a configuration steers a terminal or has no end."""
    for leaf in leaves(config.model_dump()):
        if isinstance(leaf, str):
            assert not has_control(leaf)
            assert len(leaf) <= 4000
        elif isinstance(leaf, int | float):
            assert math.isfinite(leaf)
            assert abs(leaf) <= 10**13


@pytest.mark.parametrize("key", KEYS)
def test_a_value_is_refused_shortly_or_harmless(key: str) -> None:
    found = [config_or_refusal(key, value) for value in VALUES]
    assert None in found, "no setting takes every value"
    for config in found:
        if config is not None:
            sound(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("slurm.time", "-1"),
        ("slurm.time", -1),
        ("run.min_free_disk_gib", math.inf),
        ("search.hpo_points", 10**30),
        ("training.learning_rate", -5.0),
        ("run.duration", "1001h"),
        ("run.duration", math.nan),
        ("replica.restarts", 10**9),
        ("training.shuffle_buffer", 2**40),
        ("slurm.partition", "gpu\n#SBATCH -w x"),
        ("slurm.account", "a b"),
        ("slurm.options", ["wrap=id"]),
        ("slurm.memory_per_node", "0G"),
        ("ssh.hosts", ["-oProxyCommand=id"]),
        ("ray.address", "auto;id"),
        ("environment.activate", "a\nb"),
        ("run.name", "\x1b[2J"),
        ("run.data_dir", "a\0b"),
        ("environment.container", ["a\nb"]),
        ("simulated.clock_shifts_ms", [10**15]),
    ],
)
def test_what_cannot_work_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: "):
        load_config(overrides={key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("slurm.time", "1-12:30"),
        ("slurm.time", "UNLIMITED"),
        ("slurm.partition", "gpu,debug"),
        ("slurm.constraint", "[rack1|rack2]&a100*2"),
        ("slurm.memory_per_node", "200G"),
        ("ssh.hosts", ["me@n1:22"]),
        ("ssh.hosts", ["[::1]:22"]),
        ("ray.address", "10.0.0.1:6379"),
        ("run.data_dir", "/data/Bilder für 2026"),
        ("run.name", "Größe [2]"),
        ("slurm.options", ["--comment=two words"]),
        ("run.duration", "1000h"),
    ],
)
def test_what_sites_write_is_taken(key: str, value: object) -> None:
    assert load_config(overrides={key: value})


@pytest.mark.parametrize("key", [key for key in LIMITED if key.startswith(("slurm.", "environment.", "run."))])
def test_no_setting_adds_a_line_to_a_job_script(key: str) -> None:
    for value in VALUES:
        config = config_or_refusal(key, value)
        if config is None:
            continue
        try:
            lines = job_script(ScriptRequest(config, ("--set", f"{key}=x"), "python3", "log")).splitlines()
        except UsageError as error:
            assert len(as_message(error.lines).encode()) <= MESSAGE_BYTES
            continue
        own = 14 + (config.environment.activate is not None)
        assert len([line for line in lines if not line.startswith("#SBATCH ")]) == own


@pytest.mark.parametrize("word", ["run.name=a\nb", "run.name='''a\nb'''", "run.data_dir=\x1b"])
def test_the_words_of_a_job_script_are_one_line(capsys: pytest.CaptureFixture[str], word: str) -> None:
    said = answer(capsys, "slurm", "script", "--preset", "quick", "--output", "x", "--set", word)
    refused(said)
    assert said.out == ""


@pytest.mark.parametrize("option", ["--log", "--output"])
def test_options_of_a_job_script_have_no_line_feeds(capsys: pytest.CaptureFixture[str], option: str) -> None:
    words = {"--output": "runs/x", option: "x\ntouch /tmp/evil"}
    said = answer(capsys, "slurm", "script", "--preset", "quick", *(word for pair in words.items() for word in pair))
    refused(said)
    assert said.out == ""


STRUCTURES = {
    "deep lists": "x = " + "[" * 50_000,
    "deep tables": "x = " + "{a = " * 20_000,
    "long key": "a." * 60_000 + "a = 1",
    "long table": "[" + "a." * 60_000 + "a]",
    "quoted key": '"a".' * 5000 + "a = 1",
    "big number": "run.replicas = " + "9" * 100_000,
    "big hexadecimal": "run.replicas = 0x" + "f" * 100_000,
    "many problems": "[run]\n" + "\n".join(f"k{number} = 1" for number in range(5000)),
    "many sections": "\n".join(f"[s{number}]" for number in range(5000)),
    "long names": "\n".join(f"[{'s' * 5000}{number}]" for number in range(20)),
    "too large": "#" * 2**19,
    "control characters": "[run]\nname = '\x1b'",
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_of_toml(tmp_path: Any, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(STRUCTURES[name])
    refused(answer(capsys, "config", "show", str(file)))


@pytest.mark.parametrize("file", sorted((CORPUS / "toml").iterdir()), ids=lambda file: file.name)
def test_the_corpus_of_toml(capsys: pytest.CaptureFixture[str], file: Any) -> None:
    said = answer(capsys, "config", "show", str(file))
    refused(said)
    assert file.name in said.err or "problem(s)" in said.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=",
        "run",
        "run.",
        "run.name",
        ".=1",
        "run.name=\0",
        "run.replicas=" + "9" * 5000,
        "run.replicas=0x" + "f" * 9000,
        "run.replicas=" + "[" * 9000,
        "a" * 100_000,
        "a.b=" + "x" * 100_000,
        "run.duration=" + "1" * 100_000 + "x",
        "run.name=1\nb=2",
        "a.a.a.a=1",
        "\x1b[2J.x=1",
        "run.\u202e=1",
    ],
)
def test_overrides(capsys: pytest.CaptureFixture[str], text: str) -> None:
    refused(answer(capsys, "config", "show", "--set", text))


ANY = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(key=st.sampled_from(LIMITED), value=ANY)
def test_any_value(key: str, value: object) -> None:
    config = config_or_refusal(key, value)
    if config is not None:
        sound(config)


@settings(max_examples=EXAMPLES, deadline=None)
@given(text=st.text() | st.text(alphabet="[]{}=.\"'#\n_x1 -:+") | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_toml(text: str) -> None:
    try:
        found = parse_toml(text)
    except ValueError:
        return
    assert isinstance(found, dict)


@settings(max_examples=EXAMPLES, deadline=None)
@given(key=st.sampled_from(LIMITED), text=st.text())
@example(key="run.duration", text="\r")
def test_any_override(key: str, text: str) -> None:
    try:
        name, value = parse_override(f"{key}={text}")
    except ConfigError as error:
        assert len(as_message(error.lines).encode()) <= MESSAGE_BYTES
        return
    config_or_refusal(name, value)


@settings(max_examples=EXAMPLES, deadline=None)
@given(value=st.text(alphabet=st.characters(exclude_categories=["Cs"])) | st.integers() | st.floats() | st.booleans())
@example('🙂\x7f\x1b"\\')
@example(math.inf)
def test_what_is_written_as_toml_is_read_as_the_same(value: object) -> None:
    found = parse_toml(as_toml({"a.b": value, "a.c": [value, value]}))["a"]
    assert json.dumps(found) == json.dumps({"b": value, "c": [value, value]})
