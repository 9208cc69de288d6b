"""Stage 1: slots become codes, and what they lose is measured.

A record's D slots become K small integers and can be turned back. Before any language model is trained, the
measures say what the codes keep (`fidelity`), how they are organised (`hierarchy`) and how well they
could predict at best (`ceiling`).
"""
