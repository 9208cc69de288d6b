"""Stage 4 as in the paper (`tefm rationale`): the slots that a prediction depends on, selected by a learned mask.

masked_model (the frozen model, for some of the slots) → surrogate (imitates it) → greedy (searches on the surrogate) →
extractor (imitates the search in one pass) → masks, grow (from its ranking to a mask) → verify (is it sufficient?)
"""
