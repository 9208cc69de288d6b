"""A new question from a few labels: `tefm teach` against tabular models that learn from the same sequences.

    python benchmarks/teach.py [--model FOLDER] [--draws 5] [--steps 300] [--json FILE]

The model is fitted once, without any label: unsupervised codes, and a language model that was tuned on questions about
the next admission (Diabetes130, the patients that are not set aside). The columns of the three questions are no fields
of it: readmission within 30 days, a HbA1c test above 8, insulin. For each question, k sequences of either answer are
drawn from the training patients, several times; LightGBM and logistic regression read the slots of the same sequences
(last record and history), and choose their settings in cross-validation as the head does. AUROC on the same test
patients for all of them. *Codes alone* is the head without its models of fields.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tefm_bench.measurement import environment

from tefm.datasets.diabetes130 import diabetes130
from tefm.model.ask import book_of
from tefm.model.estimator import TEFM
from tefm.model.run import split_parts
from tefm.model.task import Split
from tefm.pipeline.prepare import records_of
from tefm.questions.answering import asking, features_of
from tefm.scoring.metrics import auroc
from tefm.tables.records import Records
from tefm.tables.schema import Schema
from tefm.tables.words import text_of
from tefm.tabular.few_labels import learn
from tefm.tabular.inputs import RecordSlots, sequence_features

RESULTS = Path("benchmarks/results/teach.json")
#: The questions: a column, the value that means yes, and the words.
QUESTIONS = {
    "readmitted": ("<30", "Will the patient be readmitted within 30 days?"),
    "A1Cresult": (">8", "Is the HbA1c result above 8?"),
    "insulin": ("No", "Is the patient without insulin?"),
}
SIZES = (8, 16, 32, 64, 128)
#: Patients that sequences are drawn from, and those that are tested.
POOL, TESTED = 4_000, 3_000

Floats = NDArray[np.float64]


def fitted_model(folder: Path, steps: int) -> tuple[TEFM, Records, NDArray[np.str_]]:
    """The model, its table, the sequences of it, and the part that each is in."""
    dataset = diabetes130(balanced=False)
    fields = tuple(field for field in dataset.schema.fields if not set(field.source) & set(QUESTIONS))
    ignored = {*dataset.schema.ignore, *QUESTIONS, "outcome"} & set(dataset.frame.columns)
    schema = Schema.model_validate(
        {**dict(dataset.schema), "fields": fields, "label": None, "ignore": tuple(sorted(ignored))}
    )
    questions = {"asked": [{"next": "diagnoses", "values": 60}], "hold_out": 0.0, "pairs": 20_000}
    model = TEFM(schema, questions=questions, explanations="none", tune={"steps": steps})
    records = records_of(dataset.frame, schema, model.config, labelled=False)
    parts, _ = split_parts(model.config, records.sequences, Split())
    if not folder.is_dir():
        training, validation = (records.part(parts == part).frame for part in ("train", "validation"))
        model.fit(training, validation=validation).save(folder)
    return TEFM.load(folder), records, parts


def lightgbm(x_SF: Floats, yes_S: NDArray[np.bool_], seed: int) -> Callable[[Floats], Floats]:
    """LightGBM with settings for small data, chosen in cross-validation."""
    from lightgbm import LGBMClassifier

    settings = [
        {"n_estimators": trees, "num_leaves": leaves, "min_child_samples": least, "learning_rate": 0.05}
        for trees, leaves, least in ((50, 4, 5), (100, 4, 5), (100, 8, 5), (200, 8, 10), (50, 4, 2), (200, 4, 2))
    ]
    return _chosen(
        [LGBMClassifier(**of, random_state=seed, verbose=-1, n_jobs=1) for of in settings], x_SF, yes_S, seed
    )


def logistic(x_SF: Floats, yes_S: NDArray[np.bool_], seed: int) -> Callable[[Floats], Floats]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    models = [
        make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2_000))
        for strength in (0.0001, 0.001, 0.01, 0.1, 1.0)
    ]
    return _chosen(models, x_SF, yes_S, seed)


def _chosen(models: list[Any], x_SF: Floats, yes_S: NDArray[np.bool_], seed: int) -> Callable[[Floats], Floats]:
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(min(5, int(yes_S.sum())), shuffle=True, random_state=seed)
    losses = [
        log_loss(yes_S, cross_val_predict(model, x_SF, yes_S, cv=folds, method="predict_proba")[:, 1])
        for model in models
    ]
    best = models[int(np.argmin(losses))].fit(x_SF, yes_S)
    return lambda other_SF: best.predict_proba(other_SF)[:, 1]


def _of_codes(codes_SF: Floats, learned: NDArray[np.int64], yes_S: NDArray[np.bool_], seed: int) -> Floats:
    """Answers from the codes alone."""
    head, _ = learn({"codes": codes_SF[learned]}, yes_S[learned], share=None, seed=seed)
    return head.score({"codes": codes_SF})


def measure(folder: Path, draws: int, steps: int) -> dict[str, Any]:
    model, records, parts = fitted_model(folder, steps)
    fitted, preparation = model.fitted, model.preparation
    assert fitted.coder is not None, "the model reads codes"
    rng = np.random.default_rng(0)
    pool = rng.permutation(np.flatnonzero(parts == "train"))[:POOL]
    tested = rng.permutation(np.flatnonzero(parts == "test"))[:TESTED]
    chosen = records.select(np.concatenate([pool, tested]))
    slots = preparation.slots(chosen)
    is_pool = np.arange(len(chosen)) < len(pool)
    record_slots = RecordSlots(slots.x_ND, fitted.coder.layout, slots.with_values(np.arange(len(slots.x_ND))))
    tabular = {kind: sequence_features(record_slots, kind).x_NF.astype(np.float64) for kind in ("last", "history")}
    rows = []
    for column, (value, text) in QUESTIONS.items():
        words = text_of(records.frame[column], ()).to_numpy()[chosen.sequences.last]
        yes_S = words == value
        reader = asking(fitted.classifier, book_of(fitted).prompt, text)
        features = features_of(slots, fitted.coder, reader)
        for k in SIZES:
            scores: dict[str, list[float]] = {}
            seconds, shares = [], []
            for draw in range(draws):
                own = np.random.default_rng((draw, k))
                learned = np.concatenate(
                    [own.permutation(np.flatnonzero(is_pool & (yes_S == answer)))[:k] for answer in (False, True)]
                )
                started = time.perf_counter()
                head, _ = learn(
                    {name: x[learned] for name, x in features.items()}, yes_S[learned], share=None, seed=draw
                )
                seconds.append(time.perf_counter() - started)
                shares.append([(part.reads, round(part.share, 3)) for part in head.parts])
                answers = {"tefm teach": head.score({name: x[~is_pool] for name, x in features.items()})}
                answers["codes alone"] = _of_codes(features["codes"], learned, yes_S, draw)[~is_pool]
                for name, fit in (("LightGBM", lightgbm), ("logistic regression", logistic)):
                    for kind, x_SF in tabular.items():
                        predict = fit(x_SF[learned], yes_S[learned], draw)
                        answers[f"{name}, {kind}"] = predict(x_SF[~is_pool])
                for name, score_S in answers.items():
                    scores.setdefault(name, []).append(auroc(score_S, yes_S[~is_pool]))
            best = max((name for name in scores if name.startswith("LightGBM")), key=lambda name: np.mean(scores[name]))
            gain = np.array(scores["tefm teach"]) - np.array(scores[best])
            rows.append(
                {
                    "question": text,
                    "k": k,
                    "auroc": {
                        name: {"mean": float(np.mean(of)), "sd": float(np.std(of, ddof=1))}
                        for name, of in scores.items()
                    },
                    "ahead_of_the_better_lightgbm": {"mean": float(gain.mean()), "sd": float(gain.std(ddof=1))},
                    "shares": shares,
                    "seconds": float(np.median(seconds)),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return {"tested": int((~is_pool).sum()), "draws": draws, "steps": steps, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("runs/teach"), help="fitted where it is not there yet")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="of the language model's fine-tuning")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    measured = measure(given.model, given.draws, given.steps)
    command = shlex.join(["python", *sys.argv])
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({**measured, "machine": {**environment(), "command": command}}, indent=1) + "\n")
