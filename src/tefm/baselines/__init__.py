"""What users do today, on the same sequences and the same splits as our own model.

`compare` fits any of them and scores the test part once: the commonest class (`majority`), logistic regressions of text
and of slots (`linear`), LightGBM and XGBoost (`boosted`), a Set Transformer over the records (`set_transformer`), and
TabPFN (`tabpfn`). `inputs` is what they read, `choice` how validation picks their settings. Each fit tries four to six
settings, no model more than another. `tabular` compares the two that `tefm fit` shows.
"""
