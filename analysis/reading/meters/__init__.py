"""Power meters outside of the nodes: files that the owner puts into a run directory."""

from analysis.reading.meters.reader import Meters, MeterSeries, read_meters

__all__ = ["MeterSeries", "Meters", "read_meters"]
