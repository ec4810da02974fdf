"""Work lists: they decide what a replica does next."""

from collections.abc import Callable, Mapping

from aiperf.config.settings import RunConfig
from aiperf.records.ledger import Ledger
from primary.work.automl import AutomlRounds
from primary.work.contract import WorkList
from primary.work.suite import Suite

WORK_LISTS: Mapping[str, Callable[[RunConfig, Ledger], WorkList]] = {"automl": AutomlRounds, "science": Suite}
"""Work lists by the suite of a run (`run.suite`)."""


def open_work(config: RunConfig, ledger: Ledger | None = None) -> WorkList:
    """The work of a run from its ledger; an empty ledger, or none, is a run that begins.

    Trainings in progress in the ledger are interrupted. New ids are higher than all that were
    issued.
    """
    return WORK_LISTS[config.run.suite](config, ledger or Ledger())


__all__ = ["WORK_LISTS", "WorkList", "open_work"]
