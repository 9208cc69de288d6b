"""The paper's baselines, compared on the same split as our own model.

`compare` lists them all: class frequencies (`majority`), logistic regression on words (`tfidf`), XGBoost (`xgboost`), a
Set Transformer over the records (`set_transformer`), TabPFN (`tabpfn`), and the two that `tefm fit` compares with
(`tefm.tabular`).
"""
