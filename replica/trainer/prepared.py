"""A training that is built and warm before its time comes: all that does not need an accelerator's whole memory."""

from __future__ import annotations

from pathlib import Path

import keras

from aiperf.errors import TrialFailedError
from aiperf.messages import Begin, TrainRequest
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture
from replica.trainer.channel import AnyChannel
from replica.trainer.collectives import Collective
from replica.trainer.data import open_source
from replica.trainer.model import builder, weights
from replica.trainer.training import Training


class PreparedTrial:
    """Model, input pipeline and compiled steps of one request. Raises TrialFailedError or AiperfError."""

    def __init__(self, request: TrainRequest, collective: Collective) -> None:
        self._request = request
        self._collective = collective
        keras.mixed_precision.set_global_policy(request.precision)
        self._architecture = read_architecture(Path(request.architecture_path))
        source = open_source(request)
        _check_fit(self._architecture, source.dataset.image_size, source.dataset.classes)
        # Ranks draw different dropout masks; the weights are rank 0's.
        keras.utils.set_random_seed(request.seed + collective.rank)
        self._model = builder.build_model(self._architecture)
        builder.check_model(self._model, self._architecture)
        self._training = Training(self._model, source, collective, request)
        self._training.warm_up()

    def run(self, begin: Begin, channel: AnyChannel) -> bool:
        """Train; True where patience ended it. Raises TrialFailedError."""
        if begin.inherited is not None and self._collective.rank == 0:
            inherited = weights.inherited(begin.inherited, self._architecture, self._request.seed)
            weights.write_model(self._model, inherited)
        early = self._training.run(begin, channel)
        best = self._training.best_weights
        if begin.save_weights_path is not None and best is not None and self._collective.rank == 0:
            channel.phase("checkpoint")
            self._model.set_weights(best)
            weights.save(Path(begin.save_weights_path), weights.read_model(self._model, self._architecture))
        return early


def _check_fit(architecture: Architecture, image_size: int, classes: int) -> None:
    wanted = ((image_size, image_size, 3), (classes,))
    found = (architecture.input_shape, architecture.output_shape)
    if wanted != found:
        raise TrialFailedError(
            "build", f"the architecture maps {found[0]} to {found[1]}; the data set needs {wanted[0]} to {wanted[1]}"
        )
