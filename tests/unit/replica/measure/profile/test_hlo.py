"""Instructions of XLA programs: the node that each comes from, and the names of fusions."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from replica.measure.profile.recorded.xplane import Instruction, instructions


@dataclass
class Written:
    """An instruction as XLA describes it."""

    id: int
    name: str
    opcode: str
    node: str = ""
    operand_ids: tuple[int, ...] = ()
    called_computation_ids: tuple[int, ...] = field(default=())
    shape: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(element_type=11, dimensions=(4, 3)))
    window: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(dimensions=()))
    dot_dimension_numbers: SimpleNamespace | None = None

    @property
    def metadata(self) -> SimpleNamespace:
        return SimpleNamespace(op_name=self.node)


CONTRACTED = SimpleNamespace(lhs_contracting_dimensions=(0,))


def test_fusions_are_named_by_their_parts_and_belong_to_the_heaviest() -> None:
    update = SimpleNamespace(
        id=1,
        instructions=[
            Written(1, "p", "parameter"),
            Written(2, "w", "dot", "gradient_tape/conv/Filter", (1, 1), dot_dimension_numbers=CONTRACTED),
            Written(3, "s", "subtract", "sgd/Sub", (2,)),
        ],
    )
    relu = SimpleNamespace(
        id=2,
        instructions=[Written(4, "q", "parameter"), Written(5, "m", "maximum", "net/relu", (4,))],
    )
    entry = SimpleNamespace(
        id=3,
        instructions=[
            Written(6, "arg", "parameter", "XLA_Args"),
            Written(7, "copy.1", "copy", "", (6,)),
            Written(8, "relu_fusion", "fusion", "", (7,), (2,)),
            Written(9, "update_fusion", "fusion", "sgd/Sub", (8,), (1,)),
        ],
    )
    found = instructions(SimpleNamespace(name="step", computations=[update, relu, entry]))
    relu_work = (("net/relu", 12.0),)
    assert found["step", "relu_fusion"] == Instruction("net/relu", "fusion of maximum", relu_work)
    # Each part of a fusion counts for its own node.
    update_work = (("gradient_tape/conv/Filter", 2.0 * 12 * 4), ("sgd/Sub", 12.0))
    assert found["step", "update_fusion"] == Instruction(
        "gradient_tape/conv/Filter", "fusion of dot, subtract", update_work
    )
    assert found["step", "copy.1"] == Instruction("net/relu", "copy"), "a copy serves what reads it"
    assert found["step", "w"] == Instruction("gradient_tape/conv/Filter", "dot", update_work[:1])
