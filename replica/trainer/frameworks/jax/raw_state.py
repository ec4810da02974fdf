"""The values of a training's variables as the compiled step takes and gives them.

Keras's variables get them only when something reads these: setting hundreds of them, or making as
many arrays of all ranks, takes the host as long as a step takes a fast device.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from replica.trainer.frameworks.jax.collective import JaxCollective

Values = list[Any]
"""Arrays of some variables, in their order."""

Step = tuple[Values, Values, Values]
"""Arrays of the trained variables, of the model's others, and of the optimiser's."""


class RawState:
    """The variables of a training, and the values that steps compute with.

    With several ranks, values are arrays of all of them: alike on each, but for the model's others
    (moving statistics, seeds), of which each rank has a row of its own.
    """

    def __init__(self, variables: Sequence[Sequence[Any]], rate: Any, together: JaxCollective | None) -> None:
        """`variables`: in the order of `Step`; `rate`: the one of the optimiser's with its rate."""
        self._variables = [list(each) for each in variables]
        self._place = next(number for number, each in enumerate(self._variables[2]) if each is rate)
        self._together = together
        self._values: Step | None = None
        self._written: list[Any] | None = None
        """The arrays that the variables were given last; None if a step came after that."""
        self._rate: float | None = None

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        self._rate = rate

    def begin_step(self) -> Step:
        """Give the values that a step starts from, and consumes; then `end_step` must come.

        A step donates its arguments: their memory is that of its results, and reading them
        afterwards is an error of JAX.
        """
        values = self._values if self._values is not None and self._current() else self._collect()
        if self._rate is not None:
            rate = np.float32(self._rate)
            values[2][self._place] = rate if self._together is None else self._together.shared(rate)
            self._rate = None
        # From here on the variables have older values than the steps, until `write`.
        self._written = None
        return values

    def end_step(self, values: Step) -> None:
        """Keep the values after a step."""
        self._values = values

    def write(self) -> None:
        """Give the variables their values, if a step has changed them."""
        if self._values is None or self._written is not None:
            return
        for variables, values in zip(self._variables, self._local(self._values), strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        self._written = self._held()

    def local(self) -> tuple[Values, Values]:
        """Give this rank's values of the model's variables: of trained ones, and of others.

        The others of several ranks are rows.
        """
        values = self._values if self._values is not None and self._current() else None
        if values is None:
            values = self._values = self._collect()
            self._written = self._held()
        if self._together is None:
            return values[0], values[1]
        return _own(values[0]), _own(values[1])

    def _held(self) -> list[Any]:
        return [variable.value for variables in self._variables for variable in variables]

    def _current(self) -> bool:
        """True unless something has set a variable since it was given its value."""
        if self._written is None:
            return True
        # By identity: arrays of JAX never change, so that setting a variable gives it another one.
        return all(now is then for now, then in zip(self._held(), self._written, strict=True))

    def _collect(self) -> Step:
        trained, others, own = ([variable.value for variable in each] for each in self._variables)
        if self._together is None:
            return trained, others, own
        shared, rows = self._together.shared, self._together.rows
        return [shared(each) for each in trained], [rows(each) for each in others], [shared(each) for each in own]

    def _local(self, values: Step) -> Step:
        if self._together is None:
            return values
        trained, others, own = map(_own, values)
        return trained, _without_rank(others), own


def _own(values: Values) -> Values:
    return [value.addressable_data(0) for value in values]


@jax.jit  # type: ignore[untyped-decorator]
def _without_rank(rows: Values) -> Values:
    return [row[0] for row in rows]
