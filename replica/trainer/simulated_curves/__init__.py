"""Learning curves of simulated trainings, by suite: the place to register a new one."""

from aiperf.registry import Registry
from aiperf.wire.messages import TrainRequest
from replica.trainer.simulated_curves.contract import Course, OpenCourse

SIMULATED_CURVES: Registry[OpenCourse] = Registry(
    "course",
    {
        "automl": "replica.trainer.simulated_curves.classification:open_classification",
        "science": "replica.trainer.simulated_curves.science:open_science",
    },
)


def course_of(request: TrainRequest) -> Course:
    """The course of a request. Raises TrialFailedError and other errors as `OpenCourse` does."""
    return SIMULATED_CURVES.load("automl" if request.workload is None else "science")(request)


__all__ = ["SIMULATED_CURVES", "Course", "OpenCourse", "course_of"]
