"""Work lists by name: they decide what a replica does next. Register a new kind of work here."""

from aiperf.config.settings import RunConfig
from aiperf.records.ledger import Ledger
from aiperf.registry import Registry
from primary.work.contract import OpenWorkList, WorkList

WORK_LISTS: Registry[OpenWorkList] = Registry(
    "work list", {"automl": "primary.work.automl:AutomlRounds", "science": "primary.work.suite:Suite"}
)


def open_work(config: RunConfig, ledger: Ledger | None = None) -> WorkList:
    """The work of a new run, or of a run that is resumed from its ledger."""
    return WORK_LISTS.load(config.run.suite)(config, ledger or Ledger())


__all__ = ["WORK_LISTS", "OpenWorkList", "WorkList", "open_work"]
