"""Stage 1: slots become codes, and the loss is measured.

A record's D slots become K small integers (discrete tokens), which can be decoded again. Before any language model is
trained, the `doctor` shows how much of the records the codes preserve (`fidelity`), and how well anything could predict
from them (`ceiling`).
"""
