"""Figures of the search: architectures by cost and accuracy, family tree, points of the tuner."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from aiperf.cli.units import scale_of
from analysis.output.figures.style import COLOURS, GRID, Drawing, draw
from analysis.report.model import Report, TrialPart

MOST_NAMES = 20
TREE_SIZE = 60
"""Best architectures in the family tree; all their ancestors are drawn, too."""


@dataclass(frozen=True, slots=True)
class Grown:
    """An architecture of the run: its parent, its cost, and its best accuracy."""

    name: str
    parent: str | None
    image_operations: int
    accuracy: float
    first_trial: int


def grown_architectures(trials: tuple[TrialPart, ...]) -> dict[str, Grown]:
    """Every architecture that completed at least one epoch, by hash."""
    found: dict[str, Grown] = {}
    for trial in trials:
        if trial.architecture is None or trial.best_accuracy is None or trial.image_operations is None:
            continue
        known = found.get(trial.architecture)
        if known is None or trial.best_accuracy > known.accuracy:
            first = known.first_trial if known else trial.id
            found[trial.architecture] = Grown(
                trial.architecture, trial.parent, trial.image_operations, trial.best_accuracy, first
            )
    return found


def architecture_chart(report: Report) -> Drawing | None:
    """Operations per image against accuracy; lines lead from parents to children."""
    found = grown_architectures(report.trials)
    if not found:
        return None

    prefix, size = scale_of(max(grown.image_operations for grown in found.values()))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for grown in found.values() if len(found) <= 300 else ():
            parent = found.get(grown.parent or "")
            if parent is not None:
                axes.plot(
                    [parent.image_operations / size, grown.image_operations / size],
                    [parent.accuracy, grown.accuracy],
                    color=GRID,
                    linewidth=0.6,
                    zorder=1,
                )
        axes.scatter(
            [grown.image_operations / size for grown in found.values()],
            [grown.accuracy for grown in found.values()],
            s=18,
            color=COLOURS[0],
            zorder=2,
            rasterized=len(found) > 2000,
        )
        axes.set(xlabel=f"operations of training one image ({prefix}OP)", ylabel="best top-1 accuracy")

    caption = f"{len(found)} architectures: operations of training one image against the best accuracy."
    return draw("architectures", caption, paint)


def family_tree(report: Report) -> Drawing | None:
    """The best architectures and their ancestors: generations from left to right."""
    found = grown_architectures(report.trials)
    if not found:
        return None
    shown = _with_ancestors(found)
    places = _places(found, shown)
    shown = [name for name in shown if name in places]
    if not shown:
        return None

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for name in shown:
            parent = found[name].parent
            if parent in places:
                (x0, y0), (x1, y1) = places[str(parent)], places[name]
                axes.plot([x0, x1], [y0, y1], color=GRID, linewidth=0.8, zorder=1)
        marks = axes.scatter(
            [places[name][0] for name in shown],
            [places[name][1] for name in shown],
            c=[found[name].accuracy for name in shown],
            cmap="cividis",
            edgecolors=GRID,
            s=28,
            zorder=2,
        )
        few = len(shown) <= MOST_NAMES
        for name in shown if few else [max(shown, key=lambda name: found[name].accuracy)]:
            axes.annotate(f"trial {found[name].first_trial}", places[name], xytext=(5, 5), textcoords="offset points")
        figure.colorbar(marks, ax=axes, label="best top-1 accuracy")
        axes.set(xlabel="generation (trained ancestors)", yticks=[])
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=False)

    more = f" (the best {TREE_SIZE} of {len(found)}, with ancestors)" if len(shown) < len(found) else ""
    return draw("family", f"Family tree of the architectures{more}.", paint, min(6.0, 1.6 + 0.08 * len(shown)))


def _with_ancestors(found: dict[str, Grown]) -> list[str]:
    best = sorted(found, key=lambda name: -found[name].accuracy)[:TREE_SIZE]
    shown = dict.fromkeys(best)
    for name in best:
        parent = found[name].parent
        while parent in found and parent not in shown:
            shown[str(parent)] = None
            parent = found[str(parent)].parent
    return list(shown)


def _places(found: dict[str, Grown], shown: list[str]) -> dict[str, tuple[float, float]]:
    """Positions: the generation, and a row below elder siblings, with parents amid children."""
    children: dict[str | None, list[str]] = defaultdict(list)
    there = set(shown)
    for name in sorted(shown, key=lambda name: found[name].first_trial):
        parent = found[name].parent
        children[parent if parent in there and parent != name else None].append(name)
    places: dict[str, tuple[float, float]] = {}
    row = 0.0
    # Depth first without recursion: generations of a long run are deeper than Python's stack.
    stack = [(name, 0, False) for name in reversed(children[None])]
    while stack:
        name, generation, done = stack.pop()
        own = children.get(name, [])
        if not own:
            places[name], row = (generation, -row), row + 1
        elif done:
            places[name] = (generation, sum(places[child][1] for child in own) / len(own))
        else:
            stack.append((name, generation, True))
            stack += [(child, generation + 1, False) for child in reversed(own)]
    return places


def tuner_chart(report: Report) -> Drawing | None:
    """Accuracy of every point of the tuner against each hyperparameter that it varied."""
    points = [trial for trial in report.trials if trial.point > 0 and trial.best_accuracy is not None]
    values: dict[str, set[object]] = defaultdict(set)
    for trial in points:
        for name, value in trial.hyperparameters.items():
            values[name].add(value)
    varied = sorted(name for name, seen in values.items() if len(seen) > 1)
    if not varied:
        return None

    def paint(figure: Any) -> None:
        every = figure.subplots(1, len(varied), sharey=True, squeeze=False)[0]
        for axes, name, colour in zip(every, varied, COLOURS * len(varied), strict=False):
            own = [trial for trial in points if name in trial.hyperparameters]
            axes.scatter(
                [trial.hyperparameters[name] for trial in own],
                [trial.best_accuracy for trial in own],
                s=14,
                alpha=0.7,
                color=colour,
                rasterized=len(own) > 2000,
            )
            axes.set_xlabel(name.replace("_", " "))
            if all(isinstance(trial.hyperparameters[name], int) for trial in own):
                axes.xaxis.get_major_locator().set_params(integer=True)
        every[0].set_ylabel("best top-1 accuracy")

    return draw("tuner", f"Accuracy of {len(points)} points of the hyperparameter search.", paint)
