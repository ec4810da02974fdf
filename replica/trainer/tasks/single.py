"""The part that tasks with one network and one loss have in common."""

from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.correct import CorrectImages
from replica.trainer.tasks.contract import Part
from workloads.settings.single import OneNetwork


class SingleNetwork:
    """The part of `Task` that follows from one network."""

    target_shape: tuple[int, ...]
    correct: CorrectImages | None = None

    def __init__(self, settings: OneNetwork) -> None:
        architecture = settings.build()
        self.network = build_model(architecture)
        check_model(self.network, architecture)
        self.parts = (Part("network", list(self.network.trainable_variables)),)
        self.input_shape = tuple(self.network.input_shape[1:])
