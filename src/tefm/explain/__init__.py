"""Why the model gives one answer: features that settle it, checked with the model itself.

slot_features → population → trial (on the surrogate) → settle → check → reasons → in_words → explanation → render
"""
