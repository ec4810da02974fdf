"""Rules for the optimiser of a hybrid training, whose groups update the weights asynchronously.

Groups whose gradients are late act together as momentum 1 - 1/G (Mitliagkas et al. 2016), so that
the optimiser's own must be smaller. With SGD, a mode of curvature h is stable below a rate of
2 (1 + momentum) / h without staleness, but below (1 - momentum) / h with a staleness of 1.
"""

from aiperf.config.sections.training import TrainingSection

ADAM_FOR_SGD = 0.02
"""Rate of Adam in place of SGD, as a share of SGD's: measured with the workload `hep`."""

WARM_UP_UPDATES = 64
"""Updates over which the rate rises linearly from 0, with more than one group: as measured."""

RETURNS = 3
"""Number of times that the ranks of a lost group, or a server that was killed, are started again in
a training."""


def momentum_of(groups: int, momentum: float) -> float:
    """Momentum of SGD, or beta 1 of Adam, that `groups` groups need for the effect of `momentum`.

    One group keeps its own.
    """
    return momentum if groups == 1 else max(0.0, 1.0 - groups * (1.0 - momentum))


def rate_of(groups: int, optimiser: str, replaces: str, rate: float) -> float:
    """The learning rate of `optimiser` with this many groups, in place of `replaces` with `rate`.

    SGD takes a G-th of it. Adam takes it up to two groups and 2/G beyond, as measured.
    """
    if optimiser == "sgd":
        return rate / groups
    own = rate * (ADAM_FOR_SGD if replaces == "sgd" else 1.0)
    return own * min(1.0, 2.0 / groups)


def groups_in_words(training: TrainingSection) -> str:
    """The groups of a run, for the rules."""
    if training.groups == 1:
        return "synchronous"
    return f"{training.groups} groups with {training.parameter_servers} parameter server(s)"
