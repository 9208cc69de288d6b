"""Data sets with their schemas: one function each, which returns a `Dataset`.

`diabetes130` is embedded; `mimic3` and `cicids2017` take a folder in the official layout.
"""

from tefm.datasets.base import Dataset
from tefm.datasets.diabetes130 import diabetes130

__all__ = ["Dataset", "diabetes130"]
