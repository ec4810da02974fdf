"""Meters of a run: joined by time and nodes, their level, and files that cannot be used."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aiperf.cli.units import si
from aiperf.clock import format_utc
from aiperf.config.toml_text import toml_value
from aiperf.run_directory.paths import open_run
from analysis.output.page.view import report_page
from analysis.reading.meters.declared import declared
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.energy.parts import EnergyPart
from analysis.report.energy.sensors import energy
from analysis.report.physics import findings
from analysis.results.verify import verify
from tests.support.documentation.commands import fenced_blocks
from tests.support.folders import ROOT
from tests.support.hand_made import T0_MS, HandMadeRun
from tests.unit.aiperf.machine.test_telemetry import gpu, sample, write_samples

RUN_S = 400

BEST: dict[str, Any] = {
    "file": "pdu.csv",
    "scope": "rack",
    "joules": "energy",
    "nodes": ["*"],
    "location": "upstream",
    "includes": ["network", "storage", "head", "cooling"],
    "accuracy_percent": 0.5,
    "idle": [format_utc(T0_MS - 200_000), format_utc(T0_MS - 100_000)],
}
"""A counter of everything, as level 3 asks for."""


def a_run(folder: Path, hosts: Sequence[str] = ("n1", "n2"), **settings: dict[str, float]) -> HandMadeRun:
    figures = {f"{section}.{name}": value for section, own in settings.items() for name, value in own.items()}
    run = HandMadeRun(folder, figures).at(0).release(RUN_S, replicas=len(hosts)).at(1).start_trial(1)
    run.at(100).epoch(1, 1, correct=300).at(200).epoch(1, 2, correct=320).end(RUN_S)
    for number, host in enumerate(hosts):
        write_samples(run, host, [sample(t, cpu_percent=50.0) for t in (0, RUN_S)], f"replica-{number:04d}-1")
    return run


def csv_of(column: str, values: dict[float, object], clock_s: float = 0) -> str:
    rows = [f"{format_utc(T0_MS + round(1000 * (t + clock_s)))},{value}" for t, value in values.items()]
    return "\n".join([f"time,{column}", *rows]) + "\n"


def counted(watts: float, every_s: int = 10) -> dict[float, object]:
    """A counter: the given watts in the run, a quarter of them before it."""
    times = range(-300, RUN_S + 301, every_s)
    return {float(t): 1e6 + watts * (t if t > 0 else t / 4) for t in times}


def meters(run: HandMadeRun, *tables: dict[str, Any], files: dict[str, str], head: str = "") -> EnergyPart:
    run.paths.meters.mkdir(exist_ok=True)
    text = head
    for table in tables:
        name = "estimate" if "subsystem" in table else "meter"
        text += f"[[{name}]]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items())
    (run.paths.meters / "meters.toml").write_text(text)
    for name, content in files.items():
        (run.paths.meters / name).write_text(content)
    return energy_of(run)


def energy_of(run: HandMadeRun) -> EnergyPart:
    data = read_run(open_run(run.paths.root))
    return energy(data, data.telemetry, data.work.columns, 10**15)


def test_a_meter_of_everything_is_of_level_3(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    found = meters(run, BEST, files={"pdu.csv": csv_of("energy", counted(1000))})
    assert build_report(read_run(open_run(tmp_path))).energy.metered == found.metered
    assert found.problems == ()
    assert found.metered is not None
    assert found.metered.joules == found.metered.measured_j == pytest.approx(1000 * RUN_S)
    assert (found.metered.level, found.metered.words) == (3, "Level 3 of 3")
    assert found.metered.idle_w == pytest.approx(250)
    assert found.metered.idle_share == pytest.approx(0.25)
    assert found.basis == "meters, Level 3: nodes, cooling, head, network, storage"
    assert found.operations_per_joule == pytest.approx(10**15 / (1000 * RUN_S))
    assert found.official_error_j == pytest.approx(100e3)
    assert found.best_error_j == pytest.approx(200e3)
    assert "version 3.0" in found.metered.methodology
    assert not verify(run.paths)


WORSE: dict[str, tuple[dict[str, Any], int, str]] = {
    "means of power each second": (
        {"joules": None, "watts": "energy", "readings": "average", "sampled_s": 1.0},
        2,
        "continuously integrated energy",
    ),
    "one of its samples each 10 s": (
        {"joules": None, "watts": "energy", "sampled_s": 1.0},
        0,
        "a sample of power per second",
    ),
    "power each 10 s": ({"joules": None, "watts": "energy"}, 0, "a sample of power per second"),
    "no idle power": ({"idle": None}, 1, "idle power"),
    "idle before the readings": ({"idle": ["2020-01-01T00:00Z", "2020-01-01T01:00Z"]}, 1, "idle power"),
    "no storage": ({"includes": ["network", "head", "cooling"]}, 1, "storage: measured, estimated or declared absent"),
    "no network": ({"includes": ["storage", "head", "cooling"]}, 0, "the network, measured or estimated"),
    "an accuracy of 2 %": ({"accuracy_percent": 2}, 2, "an accuracy of 1 %"),
    "an accuracy of 3 %": ({"accuracy_percent": 3}, 1, "an accuracy of 2 %"),
    "no accuracy": ({"accuracy_percent": None}, 0, "an accuracy of 5 %"),
    "behind power supplies": ({"location": "loss-sampled"}, 2, "upstream"),
    "a loss by a data sheet": ({"location": "loss-from-maker"}, 1, "upstream"),
    "somewhere": ({"location": None}, 0, "upstream"),
    "one of two nodes": ({"nodes": ["n1"]}, 0, "all nodes, or 1/10 of them"),
}


@pytest.mark.parametrize("case", WORSE)
def test_the_level_is_that_of_the_worst_aspect(tmp_path: Path, case: str) -> None:
    changes, level, lacks = WORSE[case]
    table = {key: value for key, value in (BEST | changes).items() if value is not None}
    watts = "watts" in table
    values: dict[float, object] = dict.fromkeys(counted(1), 1000) if watts else counted(1000)
    part = meters(a_run(tmp_path), table, files={"pdu.csv": csv_of("energy", values)}).metered
    assert part is not None
    assert (part.level, part.words.partition(" of 3")[0]) == (level, f"Level {level}" if level else "Below Level 1")
    assert lacks in part.words
    # A half of the nodes is extrapolated to all.
    assert part.joules == pytest.approx(1000 * RUN_S * (2 if case == "one of two nodes" else 1))


@pytest.mark.parametrize(("watts", "found"), [(1000, False), (650, False), (630, True), (1, True)])
def test_meters_show_no_less_than_the_sensors_inside_of_the_nodes(watts: float, found: bool, tmp_path: Path) -> None:
    run = a_run(tmp_path)
    for number, host in enumerate(("n1", "n2")):
        samples = [sample(t, cpu_power_w=400.0) for t in range(0, RUN_S + 1, 100)]
        write_samples(run, host, samples, f"replica-{number:04d}-1")
    meters(run, BEST, files={"pdu.csv": csv_of("energy", counted(watts))})
    implausible = [str(each) for each in findings(read_run(run.paths)) if each.where == "meters"]
    limit = f"{si(RUN_S * 800, 'J')}, by the sensors of the nodes"
    assert implausible == [
        f"meters: {si(float(RUN_S * watts), 'J')} from the release to the end (limit: 80 % of {limit})"
        for _ in range(found)
    ]


def test_a_part_of_a_large_system_is_enough_for_level_1_or_2(tmp_path: Path) -> None:
    hosts = [f"n{number:02d}" for number in range(20)]
    files = {"pdu.csv": csv_of("energy", counted(9000))}
    table = BEST | {"nodes": [f"n{number:02d}" for number in range(15)]}
    part = meters(a_run(tmp_path / "1", hosts), table, files=files).metered
    assert part is not None
    assert (part.level, part.nodes_measured) == (1, 15), "level 2 needs 10 kW"
    part = meters(a_run(tmp_path / "2", hosts), table, files={"pdu.csv": csv_of("energy", counted(12e3))}).metered
    assert part is not None
    assert part.level == 2
    assert part.joules == pytest.approx(12e3 * RUN_S * 20 / 15)
    fewer = table | {"nodes": ["n01", "n02"]}
    part = meters(a_run(tmp_path / "3", hosts), fewer, files={"pdu.csv": csv_of("energy", counted(50e3))}).metered
    assert part is not None
    assert part.level == 1, "40 kW are enough, however few nodes they are"


@pytest.mark.parametrize("ahead_s", [0, 3600, -7.25, 86_400 * 30])
def test_a_clock_that_is_wrong_is_corrected(tmp_path: Path, ahead_s: float) -> None:
    table = {key: value for key, value in BEST.items() if key != "idle"} | {"clock_ahead_s": ahead_s}
    run = a_run(tmp_path)
    found = meters(run, table, files={"pdu.csv": csv_of("energy", counted(1000), ahead_s)})
    assert found.metered is not None
    assert found.metered.joules == pytest.approx(1000 * RUN_S, rel=1e-3)
    if abs(ahead_s) > 300:
        wrong = meters(run, table | {"clock_ahead_s": 0}, files={})
        assert wrong.metered is None
        assert any("do not span the run; see clock_ahead_s" in problem for problem in wrong.problems)


def test_feeds_nodes_and_subsystems_add_up(tmp_path: Path) -> None:
    feeds = [BEST | {"file": f"{feed}.csv", "feed": feed, "includes": []} for feed in ("a", "b")]
    switch = {
        "file": "switch.csv",
        "scope": "rack",
        "watts": "power",
        "scale": 1000,
        "includes": ["network"],
        "sampled_s": 1,
        "location": "upstream",
        "accuracy_percent": 1,
    }
    estimate = {"subsystem": "storage", "watts": 50, "source": "data sheet"}
    files = {
        "a.csv": csv_of("energy", counted(400)),
        "b.csv": csv_of("energy", counted(600)),
        "switch.csv": csv_of("power", dict.fromkeys(counted(1), 0.2)),
    }
    run = a_run(tmp_path)
    part = meters(run, *feeds, switch, estimate, files=files, head='absent = ["cooling", "head"]\n').metered
    assert part is not None
    assert part.joules == pytest.approx((400 + 600 + 200 + 50) * RUN_S)
    assert part.estimated_j == pytest.approx(50 * RUN_S)
    assert part.scope == "nodes, network, storage (estimated)"
    without = [{key: value for key, value in feed.items() if key != "feed"} for feed in feeds]
    found = meters(run, *without, files=files)
    assert found.metered is None
    assert any("n1 is behind a.csv (energy) and b.csv (energy)" in problem for problem in found.problems)
    found = meters(run, feeds[0], feeds[1] | {"nodes": ["n1"]}, files=files)
    assert any("1 node behind some of the feeds only, such as n2" in problem for problem in found.problems)


def test_many_outlets_in_one_file_and_nodes_of_others(tmp_path: Path) -> None:
    rows = [
        f"{(T0_MS / 1000 + t):.3f};{outlet};{watts}"
        for t in range(-300, RUN_S + 301, 10)
        for outlet, watts in (("1", 300), ("2", 500), ("3", 900))
    ]
    run = a_run(tmp_path, ("n1.example.org", "n2"))
    run.paths.meters.mkdir()
    text = "".join(
        f'[[meter]]\nfile = "pdu.csv"\nscope = "node"\ntime = "at"\nwatts = "power (W)"\nonly = {{outlet = "{one}"}}\n'
        f"nodes = {toml_value(nodes)}\n"
        for one, nodes in (("1", ["n1"]), ("2", ["n2", "n7"]))
    )
    (run.paths.meters / "meters.toml").write_text(text)
    (run.paths.meters / "pdu.csv").write_text("\n".join(["at;outlet;power (W)", *rows]))
    part = energy_of(run).metered
    assert part is not None
    assert part.joules == pytest.approx(800 * RUN_S)
    assert [(meter.nodes, meter.other_nodes) for meter in part.meters] == [(1, 0), (1, 1)]


BROKEN: dict[str, tuple[str, str, str]] = {
    "no description": ("", "time,energy\n", "meters/pdu.csv: meters.toml does not name it"),
    "not TOML": ("[[meter", "", "meters/meters.toml"),
    "an unknown key": ('[[meter]]\nfile="pdu.csv"\nwat="energy"\n', "", "meters/meters.toml"),
    "two columns": (
        '[[meter]]\nfile="pdu.csv"\nscope="rack"\nwatts="a"\njoules="b"\nnodes=["*"]\n',
        "",
        "one of watts",
    ),
    "another folder": ('[[meter]]\nfile="../x.csv"\nscope="rack"\nwatts="a"\nnodes=["*"]\n', "", "meter.0.file"),
    "no column": ("joules", "time,power\n1,2\n", "its first line has no column energy"),
    "no row": ("joules", "time,energy\n", "it has 0 readings, and needs two"),
    "no zone": ("joules", "time,energy\n2026-01-01 00:00:00,1\n", "names no time zone; say utc_offset"),
    "not numbers": ("joules", "time,energy\n1,nan\n2,1e999\n3,-5\n4,x\n", "it has 0 readings"),
    "binary": ("joules", "\0\1\2" * 100, "its first line has no column energy, time"),
    "another time": ("joules", "time,energy\n2020-01-01T00:00Z,1\n2020-01-01T01:00Z,2\n", "do not span the run"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, case: str) -> None:
    description, content, words = BROKEN[case]
    run = a_run(tmp_path)
    if description == "joules":
        found = meters(run, BEST, files={"pdu.csv": content})
    else:
        run.paths.meters.mkdir()
        if description:
            (run.paths.meters / "meters.toml").write_text(description)
        (run.paths.meters / "pdu.csv").write_text(content)
        found = energy_of(run)
    assert found.metered is None
    assert any(words in problem for problem in found.problems), found.problems
    if case != "another time":
        assert any(words in problem for problem in verify(run.paths))


def test_a_file_without_its_meters_is_not_counted_at_all(tmp_path: Path) -> None:
    half = [BEST | {"file": f"{node}.csv", "nodes": [node]} for node in ("n1", "n2")]
    found = meters(a_run(tmp_path), *half, files={"n1.csv": csv_of("energy", counted(500))})
    assert found.metered is None, "a half of the energy would look like a saving"
    assert any(problem.startswith("meters/n2.csv: cannot be read") for problem in found.problems)


def test_figures_of_the_owner_are_applied_to_power_and_energy_alike(tmp_path: Path) -> None:
    run = a_run(tmp_path, energy={"pue": 1.2, "co2_g_per_kwh": 400})
    found = meters(run, BEST, files={"pdu.csv": csv_of("energy", counted(9000))})
    assert found.facility is not None
    assert found.facility.joules == pytest.approx(1.2 * 9000 * RUN_S)
    assert found.facility.mean_w == pytest.approx(1.2 * 9000)
    assert found.facility.co2_kg == pytest.approx(1.2 * 9000 * RUN_S / 3.6e6 * 0.4)


def test_a_meter_of_the_facility_has_what_a_pue_adds(tmp_path: Path) -> None:
    run = a_run(tmp_path, energy={"pue": 1.2, "co2_g_per_kwh": 400})
    building = BEST | {"scope": "facility", "includes": ["cooling"]}
    estimate = {"subsystem": "storage", "watts": 100, "source": "data sheet"}
    switch = {"file": "switch.csv", "scope": "rack", "joules": "energy", "includes": ["network"]}
    files = {"pdu.csv": csv_of("energy", counted(9000)), "switch.csv": csv_of("energy", counted(200))}
    found = meters(run, building, switch, estimate, files=files)
    assert found.facility is not None
    watts = 9000 + 1.2 * (200 + 100)
    assert found.facility.joules == pytest.approx(watts * RUN_S)
    assert found.facility.mean_w == pytest.approx(watts)
    assert found.facility.co2_kg == pytest.approx(watts * RUN_S / 3.6e6 * 0.4)


def test_the_cost_of_a_run_is_that_of_what_meters_measured(tmp_path: Path) -> None:
    run = a_run(tmp_path, price={"node_hour": 0.0, "kwh": 0.25})
    meters(run, BEST, files={"pdu.csv": csv_of("energy", counted(9000))})
    cost = build_report(read_run(run.paths)).cost
    assert cost is not None
    assert cost.amount == pytest.approx(9 * RUN_S / 3600 * 0.25)


def test_a_run_without_meters_says_what_its_sensors_measure(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert energy_of(run).basis == ""
    write_samples(run, "n1", [sample(t, cpu_power_w=50.0) for t in (0, RUN_S)])
    found = energy_of(run)
    assert found.cpus_j == pytest.approx(50 * RUN_S)
    assert found.basis == "", "the other node does not report"
    write_samples(run, "n2", [sample(t, cpu_power_w=50.0) for t in (0, RUN_S)], "replica-0001-1")
    assert energy_of(run).basis == "sensors of CPU packages"


WITHOUT_POWER = {"DCGM_FI_DEV_GPU_UTIL": 90}

GPUS_W, CPUS_W = {"accelerators": [gpu(90, 300), gpu(90, 100)]}, {"cpu_power_w": 50.0}

SENSORS: dict[str, tuple[list[dict[str, Any]], str, float]] = {
    "all": ([GPUS_W | CPUS_W] * 2, "sensors of accelerators and CPU packages", 900),
    "CPUs of one node": ([GPUS_W | CPUS_W, GPUS_W], "sensors of accelerators", 800),
    "accelerators in one node": ([GPUS_W | CPUS_W, CPUS_W], "sensors of accelerators and CPU packages", 500),
    "a node without any": ([GPUS_W, {}], "", 400),
    "each node by another": ([GPUS_W, CPUS_W], "", 450),
    "an accelerator without power": ([GPUS_W | CPUS_W, {"accelerators": [gpu(90, 300), WITHOUT_POWER]}], "", 450),
    "an accelerator without power, and CPUs": (
        [GPUS_W | CPUS_W, {"accelerators": [gpu(90, 300), WITHOUT_POWER]} | CPUS_W],
        "",
        500,
    ),
}
"""What each of two nodes reports; the basis, and the watts of the operations per joule."""


@pytest.mark.parametrize("case", SENSORS)
def test_sensors_are_named_if_no_node_lacks_them(tmp_path: Path, case: str) -> None:
    nodes, basis, watts = SENSORS[case]
    run = a_run(tmp_path)
    for number, fields in enumerate(nodes):
        samples = [sample(t, cpu_percent=50.0, **fields) for t in (0, RUN_S)]
        write_samples(run, f"n{number + 1}", samples, f"replica-{number:04d}-1")
    found = energy_of(run)
    assert found.basis == basis
    assert found.operations_per_joule == pytest.approx(10**15 / (watts * RUN_S))
    assert found.sensors_j == (pytest.approx(watts * RUN_S) if basis else None)


def test_accelerators_that_a_node_described_and_never_reported_are_missing(tmp_path: Path) -> None:
    run = a_run(tmp_path, ["n1"])
    write_samples(run, "n1", [sample(t, **CPUS_W) for t in (0, RUN_S)])
    assert energy_of(run).basis == "sensors of CPU packages"
    run.paths.system.write_text('{"0": {"host": "n1", "accelerators": 8}}')
    assert energy_of(run).basis == ""


def test_the_page_names_level_meters_and_declared_figures(tmp_path: Path) -> None:
    run = a_run(tmp_path, energy={"pue": 1.25, "co2_g_per_kwh": 400})
    meters(
        run, BEST | {"device": "<b>PDU</b>", "accuracy_percent": 3}, files={"pdu.csv": csv_of("energy", counted(9000))}
    )
    page = report_page(data := read_run(open_run(tmp_path)), build_report(data))
    text = page[page.index('id="energy"') : page.index("<h3>Nodes</h3>")]
    for words in (
        "3.600 MJ",
        "Level 1 of 3; Level 2 lacks 4b: meter accuracy: an accuracy of 2 %",
        "version 3.0",
        "pdu.csv (energy)",
        "&lt;b&gt;PDU",
        "Declared by the owner, not measured",
        "a PUE of 1.25,",
        "4.500 MJ",
        "makes 0.5 kg",
    ):
        assert words in text, words
    (tmp_path / "meters" / "pdu.csv").unlink()
    page = report_page(data := read_run(open_run(tmp_path)), build_report(data))
    assert "meters/pdu.csv: cannot be read" in page


def test_the_description_in_the_guide_can_be_read() -> None:
    (text,) = [block for block in fenced_blocks(ROOT / "docs/howto/energy.md", "text") if "[[meter]]" in block]
    document = declared(text.encode())
    assert [meter.name for meter in document.meter] == ["pdu-3.csv (energy_kwh)"]
    assert document.estimate[0].watts == 1200
