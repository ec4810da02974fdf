"""The rank program: `python -m replica.trainer` reads one request and trains it.

Everything that TensorFlow prints goes to standard error, which the agent keeps as the trial's log.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from aiperf.architecture import Architecture
from aiperf.architecture_json import read_architecture
from aiperf.errors import AiperfError, TrialFailedError
from aiperf.messages import TrainerEpoch, TrainRequest
from replica.trainer.channel import Channel, now_ms


def main() -> int:
    """Train one request; 0 where the agent was told how it ended, well or not."""
    channel = Channel()
    request = channel.receive_request()
    channel.end_with_agent()
    try:
        channel.done(_train(request, channel))
    except TrialFailedError as error:
        channel.failed(error.kind, error.reason)
    except AiperfError as error:
        channel.failed("input", str(error))
    except Exception as error:  # the boundary of the process: anything else is told and logged, never lost
        traceback.print_exc()
        kind = "out_of_memory" if type(error).__name__ == "ResourceExhaustedError" else "error"
        channel.failed(kind, f"{type(error).__name__}: {error}")
    return 0


def _train(request: TrainRequest, channel: Channel) -> bool:
    channel.phase("start")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # TensorFlow takes seconds to import: only now, when there is something to train.
    import keras  # noqa: PLC0415

    from replica.trainer import builder, runtime, weights  # noqa: PLC0415
    from replica.trainer.data import open_source  # noqa: PLC0415
    from replica.trainer.training import EpochResult, Training  # noqa: PLC0415

    class Report:
        phase = staticmethod(channel.phase)
        progress = staticmethod(channel.progress)

        @staticmethod
        def epoch(result: EpochResult) -> None:
            fields = {name: getattr(result, name) for name in EpochResult.__slots__}
            channel.epoch_completed(TrainerEpoch(monotonic_ms=now_ms(), **fields))

    runtime.configure(request)
    channel.phase("build")
    architecture = read_architecture(Path(request.architecture_path))
    source = open_source(request.dataset)
    _check_fit(architecture, source.dataset.image_size, source.dataset.classes)
    keras.utils.set_random_seed(request.seed)
    model = builder.build_model(architecture)
    builder.check_model(model, architecture)
    if request.inherited is not None:
        weights.write_model(model, weights.inherited(request.inherited, architecture, request.seed))
    training = Training(model, source, request, Report())
    early = training.run()
    if request.save_weights_path is not None and training.best_weights is not None:
        channel.phase("checkpoint")
        model.set_weights(training.best_weights)
        weights.save(Path(request.save_weights_path), weights.read_model(model, architecture))
    return early


def _check_fit(architecture: Architecture, image_size: int, classes: int) -> None:
    wanted = ((image_size, image_size, 3), (classes,))
    found = (architecture.input_shape, architecture.output_shape)
    if wanted != found:
        raise TrialFailedError(
            "build", f"the architecture maps {found[0]} to {found[1]}; the data set needs {wanted[0]} to {wanted[1]}"
        )


if __name__ == "__main__":
    sys.exit(main())
