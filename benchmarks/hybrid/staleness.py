"""The staleness of real groups next to that of the simulation of their paces.

python -m benchmarks.hybrid.staleness [--groups 2,4] [--epochs 4] [--framework torch]
    [--runs FOLDER]

Real groups train the rehearsal of `hepcnn`, as in `benchmarks.hybrid`. The simulation
(`replica.trainer.simulated_groups`) has the mean paces of these groups and of their server, the
mean time of a validation, and the spread of a step that follows from the differences between
epochs. Nothing is fitted to the staleness. `distance` is the share of updates that would have to
get another staleness for the two histograms to agree (total variation), `waiting` the seconds for
the server in an update.
"""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from aiperf.facts import ExchangeFacts
from aiperf.records.bodies import GroupExchanged
from aiperf.run_directory.paths import RunPaths
from analysis.reading.run_data import RunData, read_run
from benchmarks.hybrid import measures, runs
from replica.trainer.simulated_groups import ExchangePlan, GroupPace, GroupsInTime, ServerPace

Exchange = ExchangeFacts | GroupExchanged


@dataclass(frozen=True, slots=True)
class Paces:
    """The paces of a real training."""

    groups: tuple[GroupPace, ...]
    server: ServerPace
    validation_s: float
    epochs: int


def paces_of(own: Sequence[GroupExchanged], busy_s: float, validation_s: float) -> Paces:
    """The paces of groups from their records; `busy_s` are those of the server in an update."""
    by_group = defaultdict[int, list[GroupExchanged]](list)
    for body in own:
        by_group[body.group].append(body)
    return Paces(
        groups=tuple(_pace(found) for _, found in sorted(by_group.items())),
        server=ServerPace(busy_s),
        validation_s=validation_s,
        epochs=len(by_group[0]),
    )


def _pace(own: Sequence[GroupExchanged]) -> GroupPace:
    updates = sum(body.updates for body in own)
    computing_s = sum(body.computing_s for body in own) / updates
    each = [body.computing_s / body.updates for body in own]
    # Means of n independent steps differ by the root of n less than steps do.
    spread = stdev(each) / computing_s * sqrt(updates / len(own)) if len(each) > 1 else 0.0
    return GroupPace(computing_s, all_reduce_s=sum(body.group_s for body in own) / updates, spread=min(1.0, spread))


def simulated(paces: Paces, train_images: int, step_images: int) -> list[ExchangeFacts]:
    """The facts of all epochs of groups with these paces."""
    groups = GroupsInTime(
        ExchangePlan(
            groups=paces.groups,
            servers=(paces.server,),
            train_images=train_images,
            step_images=step_images,
            epochs=paces.epochs,
        )
    )
    found: list[ExchangeFacts] = []
    for epoch in range(1, paces.epochs + 1):
        groups.train()
        if epoch == paces.epochs:
            groups.await_others()
        groups.validate(paces.validation_s)
        found += groups.report(epoch).groups
    return found


def shares(own: Sequence[Exchange]) -> list[float]:
    """The share of the updates with each staleness."""
    histogram = list(map(sum, zip_longest(*(body.staleness for body in own), fillvalue=0)))
    return [number / sum(histogram) for number in histogram]


def mean_of(histogram: Sequence[float]) -> float:
    """The mean staleness of these shares."""
    return sum(late * share for late, share in enumerate(histogram))


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Total variation of two histograms of shares, 0 to 1."""
    return sum(abs(a - b) for a, b in zip_longest(one, other, fillvalue=0.0)) / 2


def waiting_s(own: Sequence[Exchange]) -> float:
    """Seconds of waiting for the server in an update."""
    return sum(body.waiting_s for body in own) / sum(body.updates for body in own)


def _paces_of_run(data: RunData, report: Mapping[str, object]) -> tuple[list[GroupExchanged], Paces]:
    (entry,) = (entry for entry in data.ledger.trials.values() if entry.exchanges)
    own = [body for _, body in sorted(entry.exchanges.items())]
    lasts_s = {body.epoch: body.computing_s + body.group_s + body.waiting_s for body in own if body.group == 0}
    served = [body for _, body in sorted(entry.served.items())]
    busy_s = sum(body.busy_share * lasts_s.get(body.epoch, 0.0) for body in served)
    phases = report["phases_s"]
    assert isinstance(phases, dict)
    validation_s = float(phases.get("evaluate", 0.0)) / len(lasts_s)
    return own, paces_of(own, busy_s / sum(body.updates for body in served), validation_s)


def main() -> None:
    """Train, simulate, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default="2,4")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--framework", choices=("tensorflow", "torch"), default="torch")
    parser.add_argument("--runs", type=Path, help="folder that keeps the runs")
    arguments = parser.parse_args()
    print(f"{'groups':>6} {'':>9} {'mean':>6} {'largest':>8} {'waiting_ms':>11} {'distance':>9}  shares by staleness")
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.runs or Path(name)
        for groups in map(int, arguments.groups.split(",")):
            # Each rank is a group: what a group does is then what one process does.
            plan = runs.Plan(folder, groups, epochs=arguments.epochs, framework=arguments.framework)
            report = runs.to_quality(plan, groups)
            own, paces = _paces_of_run(read_run(RunPaths(folder / f"groups-{groups}")), report)
            modelled = simulated(paces, measures.EPOCH_IMAGES, runs.BATCH_SIZE)
            real, model = shares(own), shares(modelled)
            spread = fmean(group.spread for group in paces.groups)
            for label, found, histogram in (("real", own, real), ("simulated", modelled, model)):
                far = f"{distance(real, model):>9.3f}" if label == "simulated" else " " * 9
                text = " ".join(f"{share:.3f}" for share in histogram[:8])
                print(
                    f"{groups:>6} {label:>9} {mean_of(histogram):>6.2f} {len(histogram) - 1:>8} "
                    f"{1e3 * waiting_s(found):>11.2f} {far}  {text}"
                )
            print(f"{groups:>6} spread of a step {spread:.2f}, server {1e3 * paces.server.service_s:.2f} ms")


if __name__ == "__main__":
    main()
