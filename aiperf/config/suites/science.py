"""The sections of a configuration about scientific workloads, and about what work costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from aiperf.config.sections.base import MOST, Listed, Section
from aiperf.config.texts import Line, PathText

WorkloadName = Literal["resnet-hep", "hepcnn", "resnet-cos", "cosmoflow", "frcnn-ewa", "climate-semi", "dcgan-cos"]
Size = Literal["official", "rehearsal"]


class ScienceSection(Section):
    """Scientific workloads, trained to a quality (`run.suite = "science"`)."""

    workloads: Annotated[tuple[WorkloadName, ...], Listed, Field(max_length=100)] = ()
    """Workloads to train, in this order ([science.md](science.md))."""
    size: Size = "official"
    """`rehearsal`: a small network on generated data, for a laptop; never official."""
    instances: int = Field(1, ge=1, le=MOST)
    """Models of each workload to train, each with a seed of its own."""
    stop: Literal["quality", "deadline"] = "quality"
    """A model is trained until it reaches its target, or on to its last epoch or the deadline."""
    data_dir: PathText | None = None
    """Folder with the data sets, one folder each (`hep-64`, `cos-128`, `ewa-768`); default for
    rehearsals: they are generated into the user's cache before the run.
    """
    batch_size: int | None = Field(None, ge=1, le=MOST)
    """Examples per accelerator and step; default: the workload's."""
    learning_rate: float | None = Field(None, gt=0, le=1000)
    """The largest of the schedule; default: the workload's."""
    max_epochs: int | None = Field(None, ge=1, le=MOST)
    """Most epochs of a model; default: the workload's."""


class PriceSection(Section):
    """Prices, for the cost of a quality. Without them no cost is stated."""

    node_hour: float | None = Field(None, ge=0, le=1e9)
    """Price of one node for one hour, without its energy."""
    kwh: float | None = Field(None, ge=0, le=1e9)
    """Price of one kilowatt-hour."""
    currency: Line | None = None
    """Currency of both, such as `EUR`."""
    source: Line | None = None
    """Where the prices are from, such as the name and date of a price list."""
