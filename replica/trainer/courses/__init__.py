"""The courses of simulated trainings, by suite: the place to register a new one."""

from __future__ import annotations

from aiperf.registry import Registry
from aiperf.wire.messages import TrainRequest
from replica.trainer.courses.contract import Course, OpenCourse

COURSES: Registry[OpenCourse] = Registry(
    "course",
    {
        "automl": "replica.trainer.courses.classification:open_classification",
        "science": "replica.trainer.courses.science:open_science",
    },
)


def course_of(request: TrainRequest) -> Course:
    """The course of a request. Raises TrialFailedError and other errors as `OpenCourse` does."""
    return COURSES.load("automl" if request.workload is None else "science")(request)


__all__ = ["COURSES", "Course", "OpenCourse", "course_of"]
