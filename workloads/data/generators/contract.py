"""The kinds of generated data, and the files that they go into."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiperf.config.dataset_manifest import Split
from workloads.data.arrays import Rows, stacked
from workloads.data.generators import cosmology, hep, weather
from workloads.data.generators.streams import TEST_START, VALIDATION_START

FIRST: Mapping[Split, int] = {"train": 0, "validation": VALIDATION_START, "test": TEST_START}
"""Number of the first sample of each split."""

Sampler = Callable[[int, int, int], Rows]
"""Function that makes inputs and targets of a sample from seed, number and size."""


@dataclass(frozen=True, slots=True)
class GeneratedData:
    """One kind of generated data."""

    name: str
    sample: Sampler
    size: int
    """Size of the rehearsals: rows of the grid."""
    sizes: range
    """Sizes that can be made."""
    form: Callable[[int], str]
    """Function that gives the name of the format, by size."""

    def rows(self, seed: int, split: Split, numbers: range, size: int) -> Rows:
        """Make the samples of these numbers of a split."""
        return stacked([self.sample(seed, FIRST[split] + number, size) for number in numbers])


HEP = GeneratedData("hep", hep.sample, 32, range(16, 513), lambda size: "hep-224" if size >= 224 else "hep-64")
EWA = GeneratedData("ewa", weather.sample, 96, range(48, 1537, 2), lambda size: "ewa")
COS = GeneratedData("cos", cosmology.sample, 16, range(8, 257), lambda size: "cosmoflow")
COS_FIELDS = GeneratedData("cos-fields", cosmology.field_sample, 32, range(8, 257, 2), lambda size: "cosmoflow")
