"""The cross-fitted teacher: it finds a signal, and never leaks a record's own label."""

from contextlib import contextmanager

import numpy as np
from sklearn.metrics import roc_auc_score

from tefm.codes import teacher
from tefm.codes.teacher import cross_fitted_scores


def records(rows=1_500, seed=0):
    return np.random.default_rng(seed).integers(0, 4, (rows, 12)).astype(np.uint8)


def test_a_signal_is_found():
    x = records()
    labels = (x[:, 0] + x[:, 1] > 3).astype(np.int64)
    scores = cross_fitted_scores(x, labels, np.arange(len(x)))
    assert scores.shape == (1_500, 1)
    assert roc_auc_score(labels, scores[:, 0]) > 0.95
    assert abs(scores.mean()) < 1e-4 and abs(scores.std() - 1) < 1e-4


def test_labels_without_a_signal_cannot_be_read_off_the_scores():
    """A model that saw the record would know its label by heart: all records differ."""
    x = records()
    labels = np.random.default_rng(1).integers(0, 2, len(x))
    auc = roc_auc_score(labels, cross_fitted_scores(x, labels, np.arange(len(x)))[:, 0])
    assert 0.4 < auc < 0.6


def test_records_of_one_group_are_held_out_together():
    """Copies of a record under one entity: with its copies in the fit, the random label could be looked up."""
    x = np.repeat(records(300), 5, axis=0)
    labels = np.repeat(np.random.default_rng(2).integers(0, 2, 300), 5)
    groups = np.repeat(np.arange(300), 5)
    together = roc_auc_score(labels, cross_fitted_scores(x, labels, groups)[:, 0])
    apart = roc_auc_score(labels, cross_fitted_scores(x, labels, np.arange(len(x)))[:, 0])
    assert 0.35 < together < 0.65 < apart


def test_unlabelled_records_get_scores_too():
    x = records()
    labels = (x[:, 0] > 1).astype(np.int64)
    partly = np.where(np.arange(len(x)) % 3 == 0, -1, labels)
    scores = cross_fitted_scores(x, partly, np.arange(len(x)))
    assert roc_auc_score(labels[partly < 0], scores[partly < 0, 0]) > 0.95


def test_many_classes_have_a_score_each():
    x = records()
    scores = cross_fitted_scores(x, x[:, 3].astype(np.int64), np.arange(len(x)))
    assert scores.shape == (1_500, 4)
    assert (scores.argmax(axis=1) == x[:, 3]).mean() > 0.95


def test_a_class_of_one_record_does_no_harm():
    x = records(60)
    labels = np.zeros(60, dtype=np.int64)
    labels[7] = 1
    assert np.isfinite(cross_fitted_scores(x, labels, np.arange(60))).all()


def test_folds_are_numbered_in_the_progress(monkeypatch):
    titles, notes = [], []

    @contextmanager
    def progress(what, total):
        titles.append((what, total))
        yield lambda steps, note=None: notes.append(note) if note else None

    monkeypatch.setattr(teacher, "progress", progress)
    x = records(60)
    cross_fitted_scores(x, (x[:, 0] > 1).astype(np.int64), np.arange(60), folds=3)
    assert titles == [("learning which features predict the label", 3)]
    assert notes == ["fold 1 of 3", "fold 2 of 3", "fold 3 of 3"]
