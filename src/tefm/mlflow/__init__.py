"""Models for MLflow: `save_model`, `log_model`, `load_model`. What is stored is a bundle, without pickled code.

    import tefm.mlflow

    tefm.mlflow.save_model(model, "mlmodel")
    # mlflow models serve --model-uri mlmodel --env-manager local

A frame goes in, and `predict_table`'s frame comes out: a row per sequence with its class and probabilities. With
`params={"absent": True}`, missing columns of fields are absent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tefm.base import __version__
from tefm.base.errors import InputError, extra
from tefm.model.estimator import TEFM

if TYPE_CHECKING:
    import pandas as pd

#: The bundle among the data of an MLflow model, and the module that MLflow loads it with.
BUNDLE, LOADER = "bundle", "tefm.mlflow"
REQUIREMENTS = [f"tefm[language]=={__version__}", "pandas"]


def save_model(model: TEFM, path: str | Path, **settings: Any) -> None:
    """Save a fitted model as an MLflow model; `settings` are those of `mlflow.pyfunc.save_model`."""
    _stored(model, _pyfunc().save_model, path=str(path), **settings)


def log_model(model: TEFM, name: str = "model", **settings: Any) -> Any:
    """Log a fitted model to the active run; `settings` are those of `mlflow.pyfunc.log_model`."""
    return _stored(model, _pyfunc().log_model, name=name, **settings)


def load_model(model_uri: str | Path) -> TEFM:
    """The model that `save_model` or `log_model` wrote."""
    loaded = _pyfunc().load_model(str(model_uri)).get_raw_model()
    if not isinstance(loaded, TEFM):
        remedy = "give the address of a model that `tefm.mlflow` saved"
        raise InputError("this MLflow model was not saved by tefm", file=str(model_uri), remedy=remedy)
    return loaded


def _stored(model: TEFM, store: Callable[..., Any], **settings: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        bundle = model.save(Path(folder) / BUNDLE)
        given = {"pip_requirements": REQUIREMENTS, **settings}
        return store(loader_module=LOADER, data_path=str(bundle), **given)


def _pyfunc() -> Any:
    with extra("mlflow", "MLflow is not installed"):
        import mlflow.pyfunc
    return mlflow.pyfunc


# ---- called by MLflow -------------------------------------------------------------------------------------------


class _Predictor:
    """What MLflow asks for predictions."""

    def __init__(self, model: TEFM) -> None:
        self.model = model

    def predict(self, frame: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        table: pd.DataFrame = self.model.predict_table(frame, absent=bool((params or {}).get("absent", False)))
        return table

    def get_raw_model(self) -> TEFM:
        return self.model


def _load_pyfunc(path: str) -> _Predictor:
    return _Predictor(TEFM.load(path))
