"""What users do today, on the same sequences and the same splits as our own model.

`tabular`: LightGBM and logistic regression on the slots of a sequence.
"""
