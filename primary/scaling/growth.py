"""The growth of a series: what its runs have more of, and what becomes of the workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from primary.scaling.runs import Member

Mode = Literal["weak", "strong"]
Kind = Literal["replicas", "ranks"]
Batch = Literal["global", "rank"]


@dataclass(frozen=True, slots=True)
class Growth:
    """How the runs of a series differ.

    Weak: the work grows with the machine. Strong: the work stays. A replica with more ranks keeps
    its global batch (`global`), of which each rank gets its part, or the batch of a rank (`rank`).
    """

    mode: Mode = "weak"
    grows: Kind = "replicas"
    batch: Batch | None = None

    @classmethod
    def chosen(cls, mode: Mode, grows: Kind, batch: Batch | None, config: RunConfig) -> Growth:
        """The growth that options ask for. Raises UsageError if the configuration has none such."""
        if batch is not None and grows == "replicas":
            raise UsageError("--batch: replicas never share a batch; it applies to --grow ranks")
        if mode == "strong" and grows == "replicas" and config.run.suite == "automl":
            raise UsageError(
                "--mode strong: a run of AutoML has no fixed work, since every replica searches until the end; "
                "grow the ranks of its replicas (--grow ranks), or take --suite science"
            )
        batch = batch or ("global" if mode == "strong" else "rank")
        if grows == "ranks" and mode == "weak" and batch == "global":
            raise UsageError("--mode weak --batch global: the work of a step would stay; take --mode strong")
        if grows == "ranks" and batch == "global" and config.training.batch_size is None:
            raise UsageError("--batch global: state the batch of all ranks together: --set training.batch_size=N")
        return cls(mode, grows, batch if grows == "ranks" else None)

    @property
    def words(self) -> tuple[str, ...]:
        """The growth as options, without those that are usual: a note of the series has them."""
        if self == Growth():
            return ()
        batch = ("--batch", self.batch) if self.batch is not None else ()
        return ("--mode", self.mode, "--grow", self.grows, *batch)

    def member(self, count: int, config: RunConfig) -> Member:
        """The run of this size. Raises UsageError if a batch cannot be divided."""
        return Member(f"{self.grows}-{count:04d}", f"{count} {self.grows}", self._options(count, config))

    def _options(self, count: int, config: RunConfig) -> tuple[str, ...]:
        if self.grows == "replicas":
            models = self.mode == "weak" and config.run.suite == "science"
            grown = ("--instances", str(config.science.instances * count)) if models else ()
            return ("--replicas", str(count), *grown)
        ranks = ("--set", f"replica.ranks={count}")
        if self.batch == "rank":
            return ranks
        whole = config.training.batch_size or 0
        if whole % count:
            raise UsageError(f"--batch global: {whole} images cannot be divided among {count} ranks")
        return (*ranks, "--set", f"training.batch_size={whole // count}")
