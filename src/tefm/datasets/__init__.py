"""The embedded data set with its schema, as a `Dataset`; loaders of the paper's data are in `benchmarks/`."""

from tefm.datasets.diabetes130 import Dataset, diabetes130

__all__ = ["Dataset", "diabetes130"]
