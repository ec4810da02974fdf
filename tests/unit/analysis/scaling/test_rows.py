"""Weak scaling over accelerators, and over ranks without any."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from scipy.special import stdtrit

from analysis.output.figures.style import COLOURS
from analysis.report.estimates import IntervalPart
from analysis.results.scaling.chart import scaling_chart
from analysis.results.scaling.laws import Mode
from analysis.results.scaling.rows import (
    differences_in_words,
    fits_of,
    limit_in_words,
    scaling_document,
    scaling_frame,
    scaling_rows,
)
from analysis.results.source import RunResult, read_result
from analysis.verbs.scaling import _write
from tests.support.hand_made import HandMadeRun
from tests.support.science.hybrid import whole_training
from tests.unit.analysis.scaling.made import one_run
from tests.unit.analysis.science.runs import run_of_four


@pytest.mark.parametrize(("devices", "measure"), [(4, "accelerators"), (0, "ranks")])
def test_efficiency_is_relative_to_the_smallest_run(devices: int, measure: str, tmp_path: Path) -> None:
    runs = [one_run(tmp_path / "two", 2, 3, devices), one_run(tmp_path / "one", 1, 2, devices)]
    rows = scaling_rows(runs)
    assert [(row.replicas, row.accelerators, row.ranks) for row in rows] == [(1, devices, 1), (2, 2 * devices, 2)]
    assert [row.efficiency for row in rows] == [1.0, pytest.approx(0.75)]
    assert rows[0].score_ops is not None
    assert rows[1].ideal_ops == 2 * rows[0].score_ops
    assert measure in scaling_chart(rows).caption
    assert [row.differing_settings for row in rows] == [(), ()], "the size, names and hosts may differ"
    assert differences_in_words(rows) == ()


def test_runs_of_other_settings_are_marked(tmp_path: Path) -> None:
    small = one_run(tmp_path / "one", 1, 1, 0)
    large = one_run(tmp_path / "two", 2, 2, 0)
    configuration = {**large.report.configuration}
    configuration["training"] = {**configuration["training"], "batch_size": 9}
    assert small.report.score_ops is not None
    other = {"configuration": configuration, "score_ops": 9 * small.report.score_ops}
    large = replace(large, report=large.report.model_copy(update=other))
    rows = scaling_rows([large, small])
    assert [[item.key for item in row.differing_settings] for row in rows] == [[], ["training.batch_size"]]
    assert differences_in_words(rows) == (f"{tmp_path / 'two'}: training.batch_size = 9 (smallest run: null)",)
    assert list(scaling_frame(rows)["differing_settings"]) == ["", "training.batch_size"]
    drawing = scaling_chart(rows)
    assert "Hollow marks" in drawing.caption
    ticks = re.findall(r">([0-9.]+)</text>", drawing.svg)
    assert "400" in ticks, "450 % are on the axis"
    assert "0.5" not in ticks
    assert "1.5" not in ticks, "there is no half rank"


def test_an_invalid_run_is_marked_and_has_no_score(tmp_path: Path) -> None:
    HandMadeRun(tmp_path / "ended").at(0).release(100).at(1).start_trial(1).at(20).epoch(1, 1)
    rows = scaling_rows([read_result(tmp_path / "ended"), one_run(tmp_path / "one", 1, 2, 4)])
    assert [(row.status, row.score_ops is None, row.efficiency) for row in rows] == [
        ("unofficial", False, 1.0),
        ("invalid", True, None),
    ]
    assert scaling_chart(rows).svg


def test_the_page_says_what_was_measured_where_and_how_well_it_is_known(tmp_path: Path) -> None:
    rows = scaling_rows([one_run(tmp_path / "one", 1, 2, 4), one_run(tmp_path / "two", 2, 3, 4)])
    assert (rows[1].nodes, rows[1].started) == (2, "2023-11-14T22:13:20.000Z")
    known = replace(rows[1], interval_low=1.5e9, interval_high=2e9, processor="a processor", accelerator="H100 <b>")
    report = tmp_path / "two" / "report" / "report.html"
    report.parent.mkdir()
    report.write_text("")
    _write(tmp_path / "out", [rows[0], known], "weak")
    page = (tmp_path / "out" / "scaling.html").read_text()
    assert "Ideal is the score of the smallest run times the ratio of accelerators" in page
    assert "95 %: 1.500 to 2.000 GOPS" in page
    assert "2 nodes<small>a processor, H100 &lt;b&gt;</small>" in page
    assert "14 Nov 2023" in page
    links = re.findall(r'href="(?!data:|#)([^"]*)"', page)
    assert links == ["scaling.csv", "scaling.json", "scaling.svg", "scaling.png", "../two/report/report.html"]
    assert [link for link in links if not (tmp_path / "out" / link).is_file()] == []
    drawing = (tmp_path / "out" / "scaling.svg").read_text()
    assert "Bars: 95 % intervals." in page
    assert drawing.count(">efficiency (%)<") == 1
    assert COLOURS[1] not in "".join(re.findall(r"<text[^>]*>", drawing)), "letters have the page's own colour"


def strong(result: RunResult, ranks: int, batch: int, ops: float, time_s: float | None = None) -> RunResult:
    """A run with these ranks in a replica, this stated batch of a rank, and this score."""
    configuration = {**result.report.configuration}
    configuration["training"] = {**configuration["training"], "batch_size": batch}
    configuration["replica"] = {**configuration["replica"], "ranks": ranks}
    statistics = result.report.statistics
    if statistics is not None:
        known = IntervalPart(value=ops, low=0.9 * ops, high=1.1 * ops)
        statistics = statistics.model_copy(update={"score_ops": known, "samples": 5})
    own = {"configuration": configuration, "score_ops": ops, "ranks": ranks, "accelerators": 0, "took_part": 1}
    report = result.report.model_copy(update={**own, "statistics": statistics})
    if time_s is not None:
        part = report.workloads[0].model_copy(update={"time_to_quality_s": time_s})
        report = report.model_copy(update={"workloads": (part,)})
    return replace(result, report=report)


def test_a_strong_series_keeps_its_batch_and_has_laws_with_the_next_size(tmp_path: Path) -> None:
    one = one_run(tmp_path / "one", 1, 2, 0)
    runs = [strong(one, ranks, 96 // ranks, 1e12 / (0.1 + 0.9 / ranks)) for ranks in (1, 2, 4, 8)]
    rows = scaling_rows(runs, "strong")
    assert [row.differing_settings for row in rows] == [()] * 4, "the batch of all ranks stays"
    assert [row.ranks_per_replica for row in rows] == [1, 2, 4, 8]
    assert rows[0].standard_error == pytest.approx(1e11 / stdtrit(4, 0.975))
    amdahl, _ = fits_of(rows, "strong")
    assert (amdahl.law, amdahl.next_size) == ("Amdahl", 16)
    assert amdahl.value == pytest.approx(0.1)
    document = scaling_document(rows, "strong")
    assert (document["mode"], document["measure"], len(document["rows"])) == ("strong", "ranks", 4)
    assert document["fits"][0]["predicted"] == pytest.approx(1e12 / (0.1 + 0.9 / 16))
    drawing = scaling_chart(rows, "strong")
    assert drawing.caption.startswith("Strong scaling: score against ranks")
    assert "the law of Amdahl, up to the next size" in drawing.caption
    _write(tmp_path / "out", rows, "strong")
    page = (tmp_path / "out" / "scaling.html").read_text()
    assert "Every run has the same work." in page
    assert "10.0 %<small>serial share; 95 %: 10.0 % to 10.0 %" in page


def test_models_a_minute_and_time_to_quality_with_its_efficiency(tmp_path: Path) -> None:
    science = read_result(run_of_four(tmp_path / "science").paths.root)
    (part, *_) = science.report.workloads
    one = replace(science, report=science.report.model_copy(update={"workloads": (part,), "verdict": "unofficial"}))
    rows = scaling_rows([strong(one, 1, 64, 1e12, 600), strong(one, 4, 16, 3e12, 200)], "strong")
    ended = [model for model in part.models if {"completed", "early_stop"} & {own.state for own in model.trials}]
    assert ended
    assert rows[0].models == len(ended)
    assert rows[0].models_per_minute == pytest.approx(60 * len(ended) / one.report.duration_s)
    assert [row.time_efficiency for row in rows] == [1.0, pytest.approx(600 / (4 * 200))]


def test_the_waits_for_images_and_the_exchange_are_shares_of_the_training(tmp_path: Path) -> None:
    one = one_run(tmp_path / "one", 2, 2, 0)
    first, second = one.report.replica_details
    details = (
        first.model_copy(update={"input_s": 2.0, "phases_s": {"train": 20.0, "idle": 99.0}}),
        second.model_copy(update={"input_s": 9.0, "phases_s": {"train": 5.0}}),
    )
    waiting = one.report.model_copy(update={"replica_details": details})
    (row,) = scaling_rows([replace(one, report=waiting)])
    assert row.input_share == (2 + 5) / 25, "never longer than the training"
    assert row.exchange_share is None
    reduced = [each.model_copy(update={"exchange_s": 4.0}) for each in details]
    (row,) = scaling_rows([replace(one, report=one.report.model_copy(update={"replica_details": tuple(reduced)}))])
    assert row.exchange_share == (4 + 4) / 25
    hybrid = read_result(whole_training(tmp_path / "hybrid").complete(25).paths.root)
    part = hybrid.report.hybrid
    assert part is not None
    assert part.group_share is not None
    assert part.waiting_share is not None
    (row,) = scaling_rows([hybrid])
    assert row.exchange_share == part.group_share + part.waiting_share > 0


def test_a_weak_series_of_models_may_have_more_of_them(tmp_path: Path) -> None:
    runs = []
    for replicas, models in ((1, 3), (2, 6), (2, 5)):
        result = one_run(tmp_path / f"{replicas} {models}", replicas, 2, 0)
        configuration = {**result.report.configuration, "science": {"instances": models}}
        runs.append(replace(result, report=result.report.model_copy(update={"configuration": configuration})))
    found = [[item.key for item in row.differing_settings] for row in scaling_rows(runs)]
    assert found == [[], [], ["science.instances"]]


def test_a_series_of_models_says_where_its_laws_end(tmp_path: Path) -> None:
    science = read_result(run_of_four(tmp_path / "science").paths.root)
    (part, *_) = science.report.workloads
    one = replace(science, report=science.report.model_copy(update={"workloads": (part,), "verdict": "unofficial"}))
    models = scaling_rows([strong(one, 1, 64, 1e12, 600)], "strong")[0].models
    assert models > 0

    def of(sizes: tuple[int, ...], mode: Mode = "strong") -> str | None:
        runs = [strong(one, size, 64, 1e12 * size, 600) for size in sizes]
        runs = [
            replace(run, report=run.report.model_copy(update={"took_part": size}))
            for run, size in zip(runs, sizes, strict=True)
        ]
        rows = scaling_rows(runs, mode)
        assert [row.error for row in rows] == [None] * len(rows), "scientific workloads have qualities of their own"
        return limit_in_words([replace(row, differing_settings=()) for row in rows], mode)

    half, whole = max(1, models // 2), models
    assert of((half, whole)) == (
        f"{2 * whole} ranks would be {2 * whole} replicas, but the work has {models} models: "
        "the others would have nothing to train, and the score would be lower than these laws expect"
    )
    assert of((half, whole), "weak") is None, "the models grow"


def test_a_notebook_finds_the_same_numbers_in_the_table(tmp_path: Path) -> None:
    """From scaling.csv alone; the interval by another way: shares that an F test bears.

    How often an interval holds the truth is in `test_laws`.
    """
    one, noise = one_run(tmp_path / "one", 1, 2, 0), np.random.default_rng(5)
    sizes = (1, 2, 4, 8, 16)
    scores = [1e12 * (1 + 0.01 * noise.standard_normal()) / (0.08 + 0.92 / size) for size in sizes]
    rows = scaling_rows([strong(one, m, 96 // m, score) for m, score in zip(sizes, scores, strict=True)], "strong")
    _write(tmp_path / "out", rows, "strong")

    table = pd.read_csv(tmp_path / "out" / "scaling.csv")
    m, r = (table[name].to_numpy() / table[name][0] for name in ("ranks", "score_ops"))
    assert list(table["efficiency"]) == pytest.approx(list(r / m))

    def left(share: float) -> float:
        """Sum of squared relative residuals of 1/r at the best scale."""
        law = (share + (1 - share) / m) * r
        return float(((1 - law * law.sum() / (law @ law)) ** 2).sum())

    best = optimize.minimize_scalar(left, bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
    bound = best.fun * (1 + stdtrit(len(m) - 2, 0.975) ** 2 / (len(m) - 2))
    ends = [optimize.brentq(lambda share: left(share) - bound, *side) for side in ((-0.5, best.x), (best.x, 1))]
    (fit, _) = json.loads((tmp_path / "out" / "scaling.json").read_text())["fits"]
    assert [fit["law"], fit["value"]] == ["Amdahl", pytest.approx(best.x, abs=1e-5)]
    assert [fit["low"], fit["high"]] == pytest.approx(ends, abs=1e-5)
