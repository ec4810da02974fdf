"""A drawing of a network: its layers from input to output, and what the search changed."""

from math import log2
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, Range1d

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Add, BatchNorm, Concat, Conv
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from analysis.output.figures.style import COLOURS, GRID
from analysis.output.page.plots import Chart, add_hover, add_legend, new_plot

KINDS = {
    "unchanged": "#7d97ad",
    "wider": COLOURS[2],
    "larger kernel": COLOURS[4],
    "added": COLOURS[1],
}
"""Kinds of change of a layer, each with its colour."""

Arc = tuple[int, int, bool]
"""Layers between which a connection leads, and whether the search added it."""


def network_chart(paths: RunPaths, name: str, ancestor: str) -> Chart | None:
    """The network of a hash, next to the one that it grew from. None if it cannot be read."""
    store = ArchitectureStore(paths)
    try:
        network, initial = store.load(name), store.load(ancestor)
    except ArchitectureError:
        return None
    layers = [node for node in network.nodes if node.layer.has_kernel]
    plot = new_plot("layers with weights, from input to output", "channels", height=260)
    drawn = []  # in a fixed order, as the page must be the same each time
    for kind, colour in KINDS.items():
        own = [place for place, node in enumerate(layers) if change_of(node, initial) == kind]
        if own:
            source = ColumnDataSource(
                {
                    "x": own,
                    "top": [log2(channels(network, layers[place])) for place in own],
                    "name": [layers[place].name for place in own],
                    "what": [words(network, layers[place]) for place in own],
                }
            )
            drawn.append(
                plot.vbar("x", top="top", width=0.8, source=source, color=colour, legend_label=kind, name="layers")
            )
    _draw_arcs(plot, skips(network, initial), max(log2(channels(network, node)) for node in layers))
    add_hover(plot, [("layer", "@name"), ("", "@what")], drawn)
    add_legend(plot)
    plot.y_range.start, plot.x_range = 0, Range1d(-1, len(layers))
    # Heights are logarithms on a linear axis: a logarithmic one has no zero for bars to stand on.
    powers = [2, 4, 6, 8, 10, 12]
    plot.yaxis[0].ticker = FixedTicker(ticks=powers)
    plot.yaxis[0].major_label_overrides = {power: str(2**power) for power in powers}
    caption = (
        f"The network {name} next to the initial architecture. Height: channels; arcs: connections that skip layers."
    )
    return Chart("network", caption, plot)


def channels(network: Architecture, node: Node) -> int:
    """Channels of a layer's output."""
    return network.shapes[node.name][-1]


def change_of(node: Node, initial: Architecture) -> str:
    """Name the change that the search made to a layer: one of KINDS."""
    before, (same, wider, larger, added) = initial.by_name.get(node.name), KINDS
    if before is None:
        return added
    if isinstance(before.layer, Conv) and isinstance(node.layer, Conv):
        if node.layer.kernel > before.layer.kernel:
            return larger
        if node.layer.filters > before.layer.filters:
            return wider
    return same


def words(network: Architecture, node: Node) -> str:
    """A layer in words: kernel, channels, size of its output."""
    shape, (read, *_) = network.shapes[node.name], network.input_shapes(node)
    if isinstance(node.layer, Conv):
        kernel, output = ("x".join(map(str, sizes)) for sizes in (node.layer.kernel, shape[:-1]))
        return f"{kernel} convolution, {read[-1]} to {shape[-1]} channels, output {output}"
    return f"{node.layer.kind}, {read[-1]} to {shape[-1]}"


def skips(network: Architecture, initial: Architecture) -> list[Arc]:
    """Connections past layers: into an addition or concatenation, from a layer before its last."""
    place, at = -1, dict[str, int]()
    found: list[Arc] = []
    for node in network.nodes:
        before = [at[_source(network, initial, name)] for name in node.inputs]
        if node.layer.has_kernel:
            place += 1
            at[node.name] = place
            continue
        at[node.name] = max(before, default=place)
        if isinstance(node.layer, Add | Concat):
            new = node.name not in initial.by_name
            found += [(begin, at[node.name], new) for begin in before if begin < at[node.name]]
    return found


def _source(network: Architecture, initial: Architecture, name: str) -> str:
    """Find the node where an added skip connection begins, given its last node; else the node."""
    node = network.by_name[name]
    if name in initial.by_name or not (isinstance(node.layer, BatchNorm) and node.layer.zero_scale):
        return name
    before = network.by_name[node.inputs[0]]
    # If shapes differ, a projection comes first.
    return before.inputs[0] if before.layer.has_kernel else before.name


def _draw_arcs(plot: Any, arcs: list[Arc], top: float) -> None:
    for new, colour, width in ((False, GRID, 1.0), (True, COLOURS[1], 2.5)):
        own = [(begin, end) for begin, end, added in arcs if added is new]
        heights = [top + 0.5 + min(4.0, 0.3 * (end - begin)) for begin, end in own]
        plot.bezier(
            [begin for begin, _ in own],
            top + 0.2,
            [end for _, end in own],
            top + 0.2,
            [begin for begin, _ in own],
            heights,
            [end for _, end in own],
            heights,
            line_color=colour,
            line_width=width,
        )
