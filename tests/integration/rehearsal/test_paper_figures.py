"""Figures 4, 5 and 6 of the paper from rehearsals of its machines, at a smaller scale."""

import json
import re
from pathlib import Path

import pytest

from aiperf.__main__ import main
from aiperf.clock import format_utc
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import read_run
from analysis.results.source import read_result
from tests.support.folders import ROOT

SCALES = {"t4-4x8": (2, 4), "ascend-512x8": (4, 8)}
"""Replicas of the rehearsals of each machine, 8 accelerators each."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Rehearsals, those of the T4 with samples of their devices."""
    root, found = tmp_path_factory.mktemp("paper"), list[Path]()
    for machine, scales in SCALES.items():
        for replicas in scales:
            output = root / f"{machine}-{replicas}"
            file = str(ROOT / "examples" / "machines" / f"{machine}.toml")
            words = ["--replicas", str(replicas), "--duration", "1h", "--search", "modelled", "--no-page"]
            assert (
                main(
                    ["rehearse", "--machine", file, *words, "--set", "training.batch_size=128", "--output", str(output)]
                )
                == 0
            )
            if machine == "t4-4x8":
                sample(output, replicas)
            found.append(output)
    return found


def sample(output: Path, replicas: int) -> None:
    """Samples of each node every 30 s, the nodes two percentage points apart."""
    paths = RunPaths(output)
    start_ms = read_run(paths).start_ms
    assert start_ms is not None
    paths.telemetry.mkdir(exist_ok=True)
    for node in range(replicas):
        writer = f"replica-{node:04d}-1"
        lines: list[dict[str, object]] = [{"version": 1, "host": f"node-{node}", "interval_s": 30, "writer": writer}]
        for t_s in range(0, 3600, 30):
            use = 0 if t_s % 900 < 60 else 90 + 2 * node
            device = {"DCGM_FI_DEV_GPU_UTIL": use, "DCGM_FI_DEV_FB_USED": 12_000, "DCGM_FI_DEV_FB_TOTAL": 15_000}
            lines.append({"time": format_utc(start_ms + 1000 * t_s), "accelerators": [device] * 8})
        paths.telemetry_file(f"{writer}-node-{node}").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def figures(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of their figures."""
    folder = tmp_path_factory.mktemp("figures")
    assert main(["compare", *map(str, runs), "--figure", str(folder)]) == 0
    return folder


def texts(folder: Path, name: str) -> list[str]:
    """The letters of a figure, in the order of the drawing."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", (folder / f"{name}.svg").read_text())


def test_every_figure_is_there_for_print_and_for_pages(figures: Path) -> None:
    names = ("score-by-size", "score-over-time", "use-over-time")
    expected = {f"{name}.{kind}" for name in names for kind in ("pdf", "png", "svg")}
    assert {file.name for file in figures.iterdir()} == {"figures.html", *expected}
    for name in names:
        pdf = (figures / f"{name}.pdf").read_bytes()
        assert pdf.startswith(b"%PDF")
        assert b"CreationDate" not in pdf, "the same runs give the same bytes"
        (box,) = re.findall(rb"/MediaBox \[ ?([\d. ]+) ?\]", pdf)
        assert float(box.split()[2]) == pytest.approx(3.4 * 72, abs=0.1), "one column"
    page = (figures / "figures.html").read_text()
    assert page.count("<figure ") == 3
    assert "2 runs without samples of accelerators: they have no line in the figure of use" in page
    links = re.findall(r'href="(?!data:|#)([^"]*)"', page)
    assert {link for link in links if not (figures / link).is_file()} == set()
    assert len(links) == 9


def test_scores_over_time_of_several_scales_have_a_panel_for_each_system(figures: Path, runs: list[Path]) -> None:
    words = texts(figures, "score-over-time")
    assert [word for word in words if word in ("Ascend 910", "Tesla T4")] == ["Ascend 910", "Tesla T4"]
    legends = [word for word in words if "accelerators: " in word]
    assert [word.partition(":")[0] for word in legends] == [f"{n} accelerators" for n in (32, 64, 16, 32)]
    small = read_result(runs[0]).report
    assert small.score_ops is not None
    assert f"16 accelerators: {small.score_ops / 1e12:.2f} TOPS" in words, "the score at the end"
    assert "minutes since the start" in words


def test_use_has_its_averages_in_the_labels(figures: Path) -> None:
    words = texts(figures, "use-over-time")
    of_nodes = [(120 - 8) / 120 * (90 + 2 * node) for node in range(4)]
    labels = [word for word in words if "accelerators: " in word]
    assert labels == [
        f"16 accelerators: devices {sum(of_nodes[:2]) / 2:.1f} %, memory 80.0 %",
        f"32 accelerators: devices {sum(of_nodes) / 4:.1f} %, memory 80.0 %",
    ]


def test_scores_by_size_are_series_with_their_share_of_the_ideal(figures: Path, runs: list[Path]) -> None:
    words = texts(figures, "score-by-size")
    for system, (one, other), devices in (("Tesla T4", runs[:2], 32), ("Ascend 910", runs[2:], 64)):
        scores = [read_result(run).report.score_ops or 0.0 for run in (one, other)]
        assert f"{system}: {100 * scores[1] / scores[0] / 2:.1f} % of ideal at {devices}" in words
    assert {"16", "32", "64"} <= {word.replace("\N{MINUS SIGN}", "-") for word in words}


def test_a_series_draws_them_too_and_further_runs_need_figures(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", "--from", *map(str, runs[:2]), "--figure", str(tmp_path / "figures")]) == 0
    assert (tmp_path / "figures" / "score-by-size.pdf").is_file()
    assert main(["compare", *map(str, runs[:3])]) == 2
    assert "--figure FOLDER draws any number of runs together" in capsys.readouterr().err
