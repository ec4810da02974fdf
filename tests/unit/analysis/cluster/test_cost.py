"""Node hours of a run and their price by hand-made records."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from aiperf.config.settings import PriceSection
from analysis.output.page.vocabulary import cost
from analysis.output.tables import closing_lines
from analysis.reading.run_data import read_run
from analysis.report.build import build_report
from analysis.report.cluster.cost import cost_part, price_of
from analysis.report.energy.parts import EnergyPart
from analysis.report.estimates import CostPart
from tests.support.hand_made import HandMadeRun

PRICES = {"price.node_hour": 3.6, "price.kwh": 0.25, "price.currency": "EUR", "price.source": "list of May 2026"}


def run_of(root: Path, prices: Mapping[str, object] | None = None, nodes: int = 1) -> HandMadeRun:
    """Two replicas of three come, one is lost half way: its node is held until the end."""
    run = HandMadeRun(root, {"run.replicas": 3, "replica.nodes": nodes, **(prices or {})})
    return run.at(0).release(1800, replicas=2).at(1).start_trial(1).at(900).lose(0).end(1800)


def part_of(run: HandMadeRun, energy: EnergyPart | None = None) -> CostPart:
    data = read_run(run.paths)
    report = build_report(data)
    found = report.cost if energy is None else cost_part(data, report.replica_details, energy)
    assert found is not None
    return found


def energy(hosts_measured: int, basis: str = "sensors of accelerators and CPU packages") -> EnergyPart:
    return EnergyPart(
        accelerators_j=3.0e6,
        cpus_j=0.6e6,
        basis=basis,
        hosts_measured=hosts_measured,
        hosts=2,
        operations_per_joule=None,
        best_error_j=None,
        official_error_j=None,
    )


def test_node_hours_are_those_of_the_nodes_that_came_until_the_end(tmp_path: Path) -> None:
    part = part_of(run_of(tmp_path))
    assert (part.nodes, part.node_hours, part.amount) == (2, 1.0, None)
    assert cost(part) == "2 nodes for 30m00s: 1.0 node hours."


def test_each_node_of_a_replica_of_several_counts(tmp_path: Path) -> None:
    assert part_of(run_of(tmp_path, nodes=4)).nodes == 8


def test_the_price_is_that_of_node_hours_and_of_the_energy_of_every_node(tmp_path: Path) -> None:
    part = part_of(run_of(tmp_path, PRICES), energy(2))
    assert part.amount == pytest.approx(1.0 * 3.6 + 1.0 * 0.25)
    assert cost(part) == "2 nodes for 30m00s: 1.0 node hours, 3.85 EUR by the stated prices (list of May 2026)."


def test_energy_that_a_node_does_not_report_leaves_the_cost_open(tmp_path: Path) -> None:
    run = run_of(tmp_path, PRICES)
    assert part_of(run, energy(1)).amount is None
    assert part_of(run, energy(2, "")).amount is None, "one of the accelerators of a node does not report"
    assert part_of(run).amount is None


def test_energy_that_a_part_of_the_nodes_reports_has_no_price(tmp_path: Path) -> None:
    part = part_of(run_of(tmp_path, PRICES), energy(2, "sensors of accelerators"))
    assert part.amount == pytest.approx(1.0 * 3.6 + 3.0 / 3.6 * 0.25)


def test_energy_without_a_price_needs_no_meter(tmp_path: Path) -> None:
    report = build_report(read_run(run_of(tmp_path, {"price.node_hour": 3.6, "price.kwh": 0}).paths))
    assert "cost: 2 nodes for 30m00s: 1.0 node hours, 3.60 by the stated prices." in closing_lines(report)


def test_no_price_is_guessed() -> None:
    assert price_of(PriceSection(), 3600, 1.0) is None
    assert price_of(PriceSection(node_hour=2), 3600, 1.0) is None


def test_a_run_that_never_started_cost_nothing_that_is_known(tmp_path: Path) -> None:
    assert build_report(read_run(HandMadeRun(tmp_path).at(0).paths)).cost is None
