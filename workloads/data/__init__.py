"""Scientific data: real file formats, generated samples of the same schema, and descriptions."""

from workloads.data.sets import ScienceSet, find_set

__all__ = ["ScienceSet", "find_set"]
