"""Datasets with their schemas: one function each, which returns a `Dataset`.

`diabetes130` is embedded; `mimic3` and `cicids2017` take a folder in the official layout.
"""

from tefm.datasets.base import Dataset
from tefm.datasets.cicids2017 import cicids2017
from tefm.datasets.diabetes130 import diabetes130
from tefm.datasets.mimic3 import mimic3

__all__ = ["Dataset", "cicids2017", "diabetes130", "mimic3"]
