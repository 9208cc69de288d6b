"""Stage 1: slots become codes, and the loss is measured.

A record's D slots become K small integers, which can be decoded again. Before any language model is trained, three
measurements show how much of the records the codes preserve (`fidelity`), how they are organised (`hierarchy`) and how
well they could predict at best (`ceiling`).
"""
