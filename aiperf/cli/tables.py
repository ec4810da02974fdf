"""Tables in a terminal: their columns fit, and no number is cut."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult  # noqa: TID251
from rich.table import Column, Table

from aiperf.cli.console import PlainConsole

MOST_NAMED = 8
"""Replicas or nodes that a line names."""

MOST_ROWS = 100
"""Upper limit for the printed rows of a table; the CSV files have all."""


NARROWEST = 12
"""Characters that a column of text keeps; longer text is wrapped."""


class FittingTable(Table):
    """A table in which no number is ever cut.

    What does not fit into the terminal is left out column by column, in the order of `dropped`,
    then from the right; the caption names it. The first column stays.
    """

    dropped: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, out = list(self.columns), list[str]()
        order = [column for name in self.dropped for column in columns if column.header == name]
        order += [column for column in reversed(columns[1:]) if column not in order]
        while order and 1 + sum(_least_width(column) + 3 for column in columns) > options.max_width:
            column = order.pop(0)
            columns.remove(column)
            out.append(str(column.header))
        shown = Table(title=self.title, title_justify="left", caption_justify="left", caption=self.caption)
        shown.columns = [replace(column, no_wrap=column.justify == "right", overflow="fold") for column in columns]
        shown.rows = self.rows
        if out:
            shown.caption = f"left out at this width: {', '.join(out)}"
        yield from shown.__rich_console__(console, options)


def _least_width(column: Column) -> int:
    """Numbers need their width; text can be wrapped."""
    longest = max((cell_len(str(cell)) for cell in (column.header, *column.cells)), default=0)
    return longest if column.justify == "right" else min(longest, NARROWEST)


def make_table(
    title: str | None, *headings: str, left: Collection[str] | None = None, dropped: Sequence[str] = ()
) -> Table:
    """An empty table.

    Columns in `left` are aligned to the left, others to the right; by default all left. In a narrow
    terminal those in `dropped` are left out first, in this order.
    """
    table = FittingTable(title=title, title_justify="left")
    table.dropped = dropped
    for heading in headings:
        table.add_column(heading, justify="left" if left is None or heading in left else "right")
    return table


def print_line(console: PlainConsole, line: str) -> None:
    """Print a line as it is: nothing in it is markup, and it is not wrapped."""
    console.print(line, highlight=False, soft_wrap=True)
