"""References that corroborate the selected features of a rationale.

They live in `tefm.records`, so that the embedded tables of `tefm.datasets` can be made of them.
"""

from tefm.records.references import Reference, References

__all__ = ["Reference", "References"]
