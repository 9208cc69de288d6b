"""Stage 4: which features an answer depends on, checked with the model itself.

By look-alikes (`tefm explain`):
features → population → trial (on the surrogate) → settle → check, evidence → reasons → explanation → render

By masks, as in the paper (`tefm rationale`): `masks/`.
"""
