"""Learning curves of simulated trainings."""

from aiperf.wire.messages import ArchitectureRequest, TrainRequest
from replica.trainer.simulated_curves.classification import open_classification
from replica.trainer.simulated_curves.contract import SimulatedCourse


def course_of(request: TrainRequest) -> SimulatedCourse:
    """The course of a request.

    Looks at the request and the files that it names. Raises TrialFailedError, or an error of these
    files, as the real trainer does.
    """
    if isinstance(request, ArchitectureRequest):
        return open_classification(request)
    from replica.trainer.simulated_curves.science import open_science  # noqa: PLC0415

    return open_science(request)


__all__ = ["SimulatedCourse", "course_of"]
