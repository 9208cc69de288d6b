"""Stage 4 as in the paper (`tefm rationale`): the slots that a prediction depends on, selected by a learned mask.

masked_model (masks, and the frozen model's answers under them) → surrogate (imitates it) → extractor (searches on the
surrogate, and imitates the search in one pass) → verify (from its ranking to the smallest sufficient mask)
"""
