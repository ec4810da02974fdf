"""Programs that train, by name (`training.trainer`): the place to register a new one."""

from collections.abc import Callable
from dataclasses import dataclass

from aiperf.config.settings import RunConfig
from aiperf.processes import python_module
from aiperf.registry import Registry
from replica.trainer.settings import RankSettings


@dataclass(frozen=True, slots=True)
class RankProgram:
    """The command line of a rank."""

    command: tuple[str, ...]
    is_whole_group: bool = False
    """True if one process stands for all ranks of a training, so that no starter is needed."""


MakeRankProgram = Callable[[RankSettings, RunConfig], RankProgram]
"""Function that makes the program of a rank, which speaks `aiperf.wire.messages` over a socket."""


def keras(settings: RankSettings, config: RunConfig) -> RankProgram:
    """Make the command of the trainer, with real models and real data."""
    own = settings.model_copy(update={"framework": config.training.framework})
    return RankProgram(python_module("replica.trainer", own.model_dump_json()))


def simulated(settings: RankSettings, config: RunConfig) -> RankProgram:
    """Make the command of a trainer that only takes the time of a training, for rehearsals."""
    words = (settings.model_dump_json(), config.simulated.model_dump_json())
    return RankProgram(python_module("replica.trainer.simulated", *words), is_whole_group=True)


TRAINERS: Registry[MakeRankProgram] = Registry("trainer", {"keras": keras, "simulated": simulated})
