"""Conventional models on the same sequences and the same split as our own: what users would fit without it.

`compare` fits baselines and scores the test part once; `tabular` names the two that `tefm fit` compares with, LightGBM
(`boosted`) and logistic regression (`linear`). `inputs` is what they are given, `choice` how validation picks their
settings. Each fit tries four to six settings, no model more than another. The paper's other baselines are in
`bench/baselines`.
"""
