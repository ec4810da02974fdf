"""The training that a request asks for: synchronous, or hybrid."""

from __future__ import annotations

from dataclasses import replace

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from replica.trainer.framework import CompiledSteps
from replica.trainer.hybrid.group import GroupCollective
from replica.trainer.hybrid.leading import LeadingTraining
from replica.trainer.hybrid.training import FollowingTraining, Trained
from replica.trainer.training import Training, TrainingInputs


def training_of(steps: CompiledSteps, inputs: TrainingInputs, trained: Trained, clock: Clock) -> Training:
    """The training of a network's variables.

    Raises TrialFailedError ("input") if either the ranks or the request are hybrid, not both.
    """
    group, hybrid = inputs.collective, inputs.request.hybrid
    if isinstance(group, GroupCollective) != (hybrid is not None):
        raise TrialFailedError("input", "ranks and request disagree about groups and parameter servers")
    if not isinstance(group, GroupCollective):
        return Training(steps, inputs, clock)
    inputs = replace(inputs, group=group.group, groups=group.groups)
    kind = LeadingTraining if group.group == 0 else FollowingTraining
    return kind(steps, inputs, group, trained, clock)
