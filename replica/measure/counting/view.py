"""Output of `aiperf ops`: tables like the paper's Table 3 and Table A1, JSON, CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from aiperf.cli.console import PlainConsole
from aiperf.cli.units import number, si
from aiperf.network.operations import RULE_SET, LayerCount, NetworkCount, Operations
from aiperf.network.roofline import Peaks, bound_of, roofline_rate
from aiperf.untrusted.text import for_cell


@dataclass(frozen=True, slots=True)
class Amounts:
    """The numbers of images that multiply the count (None: not asked for), and its rules."""

    batch: int | None = None
    images: int | None = None
    validation_images: int | None = None
    rule_set: str = RULE_SET


@dataclass(frozen=True, slots=True)
class Comparison:
    """The operations of one image by another tool, with relative differences to AIPerf's count."""

    source: str
    forward: float
    forward_difference: float
    training: float | None
    training_difference: float | None


def ratio(operations: Operations) -> float:
    """The ratio of backward to forward operations; 0 without any."""
    return operations.backward / operations.forward if operations.forward else 0.0


def as_document(name: str, count: NetworkCount, amounts: Amounts) -> dict[str, Any]:
    """The count as JSON."""
    whole = count.operations
    document: dict[str, Any] = {
        "rule_set": amounts.rule_set,
        "source": name,
        "forward": whole.forward,
        "backward": whole.backward,
        "total": whole.total,
        "parameters": count.parameters,
        "layers": {
            kind: {
                "count": part.count,
                "forward": part.operations.forward,
                "backward": part.operations.backward,
                "parameters": part.parameters,
            }
            for kind, part in count.by_kind.items()
        },
    }
    return {**document, **dict(_amounts(whole, amounts))}


def add_roofline(document: dict[str, Any], count: NetworkCount, peaks: Peaks | None, batch: int = 1) -> None:
    """Add the ceiling of each kind of layer, and of each layer, to `as_document`.

    A step of `batch` images moves the weights once.
    """
    for kind, entry in document["layers"].items():
        entry.update(_bound([layer for layer in count.layers if layer.kind == kind], peaks, batch))
    document["each_layer"] = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "forward": layer.operations.forward,
            "backward": layer.operations.backward,
            **_bound([layer], peaks, batch),
        }
        for layer in count.layers
    ]
    document["roofline"] = {
        **_bound(count.layers, peaks, batch),
        "images_per_s": None if peaks is None else roofline_rate(count, peaks, batch),
        "upper_bound": peaks is not None and peaks.upper_bound,
    }


def _bound(layers: Sequence[LayerCount], peaks: Peaks | None, batch: int) -> dict[str, Any]:
    found = bound_of(layers, peaks, batch)
    return {"ceiling_ops": None, "intensity": None, "bound": None} if found is None else asdict(found)


def print_roofline(console: PlainConsole, count: NetworkCount, peaks: Peaks | None, batch: int = 1) -> None:
    """Print intensity and ceiling of each kind of layer in a training step of `batch` images."""
    table = Table(title="Roofline, training", title_justify="left")
    for heading in ("Layer", "Operations/byte", "Ceiling", "Bound"):
        table.add_column(heading, justify="left" if heading in ("Layer", "Bound") else "right")
    kinds = [(kind, [layer for layer in count.layers if layer.kind == kind]) for kind in count.by_kind]
    for name, layers in (*kinds, ("Total", list(count.layers))):
        found = bound_of(layers, peaks, batch)
        if found is not None:
            ceiling = "not known" if found.ceiling_ops is None else si(found.ceiling_ops, "OPS")
            table.add_row(name, si(found.intensity), ceiling, found.bound)
    console.print(table)
    rate = None if peaks is None else roofline_rate(count, peaks, batch)
    console.print(f"at these ceilings: {'not known' if rate is None else f'{si(rate)} images/s'}", highlight=False)
    if peaks is not None and peaks.upper_bound:
        console.print("the ceiling of memory is an upper bound: a part of the triad's bytes may come from the caches")


def _amounts(whole: Operations, amounts: Amounts) -> Iterator[tuple[str, dict[str, int]]]:
    if amounts.batch is not None:
        yield "step", {"images": amounts.batch, **_scaled(whole, amounts.batch)}
    if amounts.images is not None or amounts.validation_images is not None:
        trained, evaluated = amounts.images or 0, amounts.validation_images or 0
        epoch = {"images": trained, "validation_images": evaluated, **_scaled(whole, trained)}
        epoch["validation_forward"] = evaluated * whole.forward
        epoch["training_and_validation"] = whole.work(trained, evaluated)
        yield "epoch", epoch


def _scaled(whole: Operations, images: int) -> dict[str, int]:
    return {
        "forward": images * whole.forward,
        "backward": images * whole.backward,
        "total": images * whole.total,
    }


def as_csv(count: NetworkCount) -> str:
    """The count layer by layer as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "kind", "forward", "backward", "total", "parameters"))
    for layer in count.layers:
        names, operations = (for_cell(layer.name), for_cell(layer.kind)), layer.operations
        writer.writerow((*names, operations.forward, operations.backward, operations.total, layer.parameters))
    return text.getvalue()


def print_tables(console: PlainConsole, name: str, count: NetworkCount, amounts: Amounts) -> None:
    """Print operations per image as in the paper's Table 3, then the amounts asked for."""
    console.print(_table3(name, count))
    whole = count.operations
    console.print(
        f"per image: forward {whole.forward:,}, backward {whole.backward:,}, total {whole.total:,}; "
        f"parameters {count.parameters:,}; rule set {amounts.rule_set}",
        highlight=False,
    )
    for title, values in _amounts(whole, amounts):
        shown = (
            f"{key} {value:,}" if key.endswith("images") else f"{key} {si(value, 'OP')}"
            for key, value in values.items()
        )
        console.print(f"{title}: " + ", ".join(shown), highlight=False)


def _table3(name: str, count: NetworkCount) -> Table:
    table = Table(title=f"Operations per image: {name}", title_justify="left", show_footer=True)
    whole = count.operations
    totals = ("Total", str(len(count.layers)), *_cells(whole), f"{count.parameters:,}")
    for heading, footer in zip(("Layer", "Count", "FP", "BP", "BP/FP", "Total", "Parameters"), totals, strict=True):
        table.add_column(heading, footer, justify="left" if heading == "Layer" else "right")
    for kind, part in count.by_kind.items():
        table.add_row(kind, str(part.count), *_cells(part.operations), f"{part.parameters:,}")
    return table


def _cells(operations: Operations) -> tuple[str, str, str, str]:
    return (
        si(operations.forward, "OP"),
        si(operations.backward, "OP"),
        f"{ratio(operations):.4f}",
        si(operations.total, "OP"),
    )


def print_verification(console: PlainConsole, whole: Operations, found: list[Comparison], amounts: Amounts) -> None:
    """Print the count next to others: per image, and per epoch as in the paper's Table A1."""
    table = Table(title="Verification, operations per image", title_justify="left")
    for heading in ("Source", "FP", "difference", "FP + BP", "difference"):
        table.add_column(heading, justify="left" if heading == "Source" else "right")
    table.add_row(f"analytical ({amounts.rule_set})", si(whole.forward, "OP", 5), "", si(whole.total, "OP", 5), "")
    for row in found:
        training = "-" if row.training is None else si(row.training, "OP", 5)
        difference = "-" if row.training_difference is None else f"{row.training_difference:+.2%}"
        table.add_row(row.source, si(row.forward, "OP", 5), f"{row.forward_difference:+.2%}", training, difference)
    console.print(table)
    console.print(_table_a1(whole, found, amounts))


def _table_a1(whole: Operations, found: list[Comparison], amounts: Amounts) -> Table:
    images, validation = amounts.images or 0, amounts.validation_images or 0
    table = Table(title=f"Per epoch: {images:,} training and {validation:,} validation images", title_justify="left")
    columns = [("analytical", float(whole.forward), float(whole.total))]
    columns += [(row.source, row.forward, row.training or float("nan")) for row in found]
    table.add_column("Procedure")
    for source, _, _ in columns:
        table.add_column(source, justify="right")

    def row(title: str, values: list[float], ratio: bool = False) -> None:
        # NaN differs from itself: a source that does not count the training.
        known = [None if value != value else value for value in values]  # noqa: PLR0124
        table.add_row(title, *(number(value) if ratio else si(value, "OP") for value in known))

    row("FP (training)", [images * forward for _, forward, _ in columns])
    row("BP (training)", [images * (training - forward) for _, forward, training in columns])
    row("BP / FP (training)", [training / forward - 1 for _, forward, training in columns], ratio=True)
    row("Total (training)", [images * training for _, _, training in columns])
    row("FP (validation)", [validation * forward for _, forward, _ in columns])
    row("Total (training + validation)", [images * t + validation * f for _, f, t in columns])
    return table
