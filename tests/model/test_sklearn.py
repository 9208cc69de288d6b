"""`TEFM` as scikit-learn knows an estimator, and tables as people have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, QUICK, STAYS, Explained, quick, stays
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.utils.estimator_checks import parametrize_with_checks

from tefm import TEFM, Schema, scorers
from tefm.base.errors import InputError

TABLE = stays(80, seed=1)
#: One step of everything: what the checks ask is not how well it predicts.
SMALL: dict[str, Any] = {
    "codes": {"levels": 1, "entries": 8, "latent": 8, "hidden": 16, "steps": 5},
    "task_aware": False,
    "tune": {"steps": 2, "batch": 16},
    "explanations": "none",
    "rationale": "none",
}
#: Where a model of sequences differs from what scikit-learn expects of a model of rows.
EXCEPTIONS = {
    "check_classifiers_train": "two steps of training predict nothing; what a fit reaches is tested in test_model.py",
    "check_n_features_in": "columns are matched by name, so a table is not refused for the number of its columns",
    "check_n_features_in_after_fitting": "as above: a missing column is named, further ones are ignored",
    "check_methods_subset_invariance": "float32 sums differ in the last digits with the number of rows in a batch",
    "check_estimators_empty_data_messages": "the error names the table and the remedy, in other words than expected",
    "check_fit2d_1sample": "as above",
    "check_estimator_sparse_array": "sparse arrays are refused; the check looks for other words",
    "check_estimator_sparse_matrix": "as above",
}


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([TEFM(device="cpu", **SMALL)], expected_failed_checks=lambda estimator: EXCEPTIONS)
def test_scikit_learns_own_checks(estimator: TEFM, check: Callable[[TEFM], None], backbones: dict[str, Path]) -> None:
    check(estimator.set_params(backbone=str(backbones["llama"])))


def test_a_clone_has_the_same_parameters_and_nothing_learned(fitted: TEFM) -> None:
    copy = clone(fitted)
    assert is_classifier(copy)
    assert copy.get_params().keys() == fitted.get_params().keys()
    assert copy.codes == fitted.codes and copy.schema == fitted.schema
    assert not copy.__sklearn_is_fitted__() and fitted.__sklearn_is_fitted__()


def test_every_parameter_and_attribute_is_documented(fitted: TEFM) -> None:
    document = str(TEFM.__doc__)
    for name in (*TEFM().get_params(), *(name for name in vars(fitted) if name.endswith("_"))):
        assert f"    {name} : " in document, name


def test_cross_validation_keeps_the_records_of_an_entity_together(fitted: TEFM) -> None:
    """Every fold has whole patients, and its score is their accuracy."""
    table = stays(90)
    tune = {**QUICK["tune"], "label_share": 1.0}  # a teacher of 45 patients is unsure, and the steps are few
    model = quick(Path(fitted.backbone), STAYS, tokenizer=fitted.tokenizer_, tune=tune, **ONLY_PREDICTS)
    folds = {"groups": table["patient"].to_numpy(), "cv": GroupKFold(2), "error_score": "raise"}
    scores = cross_validate(model, table, table["died"].to_numpy(), scoring=scorers, **folds)
    assert scores["test_accuracy"].shape == (2,)
    assert (scores["test_accuracy"] > 0.8).all() and (scores["test_roc_auc"] > 0.8).all()


def test_a_score_is_the_accuracy_of_sequences(fitted: TEFM) -> None:
    accuracy = fitted.evaluate(TABLE, resamples=0).scores.accuracy.value
    assert fitted.score(TABLE) == accuracy
    assert fitted.score(TABLE.drop("died"), TABLE["died"].to_numpy()) == accuracy
    last = TABLE.group_by("patient", maintain_order=True).agg(pl.col("died").sort_by("day").last())["died"]
    assert accuracy == pytest.approx(np.mean(fitted.predict(TABLE) == last.to_numpy()))


def test_scorers_count_each_sequence_once(fitted: TEFM) -> None:
    """`y` has a label per row; scikit-learn's own scorers would compare rows with sequences."""
    scores = fitted.evaluate(TABLE, resamples=0).scores
    rows, labels = TABLE.drop("died"), TABLE["died"].to_numpy()
    assert len(rows) > scores.n
    assert scorers["roc_auc"](fitted, rows, labels) == scores.auroc.value
    assert scorers["neg_brier_score"](fitted, TABLE) == -scores.brier.value


def test_labels_may_come_apart_from_the_table(backbones: dict[str, Path], explained: Explained) -> None:
    table = stays(60)
    inside = quick(backbones["llama"], **ONLY_PREDICTS).fit(table)
    beside = quick(backbones["llama"], **ONLY_PREDICTS).fit(table.drop("died"), table["died"].to_numpy())
    assert np.array_equal(inside.predict_proba(TABLE), beside.predict_proba(TABLE))
    explained(InputError, lambda: clone(inside).fit(table, ["yes"]), "1 labels", f"{table.height} rows")


@pytest.mark.parametrize("kind", [int, bool])
def test_predictions_have_the_type_of_the_label(kind: type, fitted: TEFM, tmp_path: Path) -> None:
    """Given apart or as a column, after saving too."""
    table = stays(60).with_columns(died=(pl.col("died") == "yes").cast(pl.Int64 if kind is int else pl.Boolean))
    model = TEFM(STAYS, backbone=fitted.backbone, device="cpu", **SMALL)
    if kind is int:
        model.fit(table.drop("died"), table["died"].to_numpy())
    else:
        model.fit(table)
    assert model.classes_.tolist() == [kind(0), kind(1)]
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    last = table.group_by("patient", maintain_order=True).agg(pl.col("died").last())["died"].to_numpy()
    assert accuracy_score(last, again.predict(table)) == again.score(table)
    assert again.predict_table(table)["predicted"].dtype == table["died"].dtype


def test_pandas_in_pandas_out(fitted: TEFM) -> None:
    predicted = fitted.predict_table(TABLE.to_pandas())
    assert isinstance(predicted, pd.DataFrame)
    assert predicted.equals(fitted.predict_table(TABLE).to_pandas())
    assert np.array_equal(fitted.predict_proba(TABLE.to_pandas()), fitted.predict_proba(TABLE))


def test_one_record_as_a_dict_and_several_as_a_list(fitted: TEFM) -> None:
    records = TABLE.filter(pl.col("patient").is_in(["p3", "p7"])).to_dicts()
    assert fitted.predict_proba(records).shape == (2, 2)
    one = fitted.predict_table({**records[0], "patient": "somebody"})
    assert one["patient"].to_list() == ["somebody"]
    assert one["records"].to_list() == [1]


@pytest.mark.parametrize("name", ["records", "predicted", "p(yes)", "p(no)"])
def test_identifiers_keep_their_column_whatever_its_name(name: str, fitted: TEFM) -> None:
    schema = Schema.from_yaml(STAYS.to_yaml().replace("entity: patient", f"entity: '{name}'"))
    table = TABLE.rename({"patient": name}).with_columns(pl.col(name).str.slice(1).cast(pl.Int64))
    model = quick(
        Path(fitted.backbone),
        schema,
        tokenizer=fitted.tokenizer_,
        tune={"steps": 1},
        explanations="none",
        rationale="none",
    )
    predicted = model.fit(table).predict_table(table)
    assert predicted[name].to_list() == table[name].unique(maintain_order=True).to_list()  # numbers stay numbers
    assert len(predicted.columns) == 5
    assert f"{name}_" in predicted.columns


def test_a_notebook_shows_what_a_model_is(fitted: TEFM) -> None:
    assert repr(TEFM(layers=2)) == "TEFM(layers=2)"
    assert (
        repr(TEFM(STAYS)) == "TEFM(schema=Schema(3 fields, record='stay', entity='patient', time='day', label='died'))"
    )
    page = fitted._repr_html_()
    assert "died from the stays of one patient" in page
    assert f"{fitted.figures_['validation']['auroc']['value']:.3f}" in page
    assert "<script" not in page
    assert "TEFM" in TEFM()._repr_html_()


def test_a_misspelled_parameter_is_named() -> None:
    with pytest.raises(TypeError, match="no parameter 'layer'; did you mean 'layers'"):
        TEFM(layer=1)  # type: ignore[call-arg]


def test_importance_names_the_field_that_decides(fitted: TEFM) -> None:
    """Morphine decides who died; the order is by how far the answers move, and each figure has its interval."""
    found = fitted.importance(TABLE.to_pandas(), sequences=60)
    assert found["field"][0] == "drugs" and set(found["field"]) == {"age", "ward", "drugs"}
    assert (found["low"] <= found["change"]).all() and (found["change"] <= found["high"]).all()
    assert found["flips"][0] > 0.2 and found["low"][0] > found["high"][1]
