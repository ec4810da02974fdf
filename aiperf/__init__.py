"""The vocabulary that primary, replica and analysis share: architectures, operations, records, score."""

__version__ = "0.1.0"
