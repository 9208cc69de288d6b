"""The cross-fitted teacher: it finds a signal, and never leaks a record's own label."""

from contextlib import contextmanager

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.metrics import roc_auc_score

from tefm.codes import coder
from tefm.codes.config import TokenizerConfig
from tefm.codes.trainer import Lessons, Trainer
from tefm.tables.layout import Layout, Slot
from tefm.tabular import teacher
from tefm.tabular.inputs import Features
from tefm.tabular.teacher import LEAST, FirstTrees, Teacher, boosted_trees, taught_by_words


@pytest.fixture(autouse=True)
def fewer_trees(monkeypatch):
    """As many as these records need, instead of those for a few thousand."""
    monkeypatch.setattr(teacher, "FEW_TREES", 40)


def records(rows=1_500, seed=0):
    return np.random.default_rng(seed).integers(0, 4, (rows, 12)).astype(np.uint8)


def taught(x, labels, groups=None, *, others=(), **settings):
    groups = np.arange(len(x)) if groups is None else groups
    choices = [Features(x_NF, ("number",) * x.shape[1]) for x_NF in (*others, x)]
    return Teacher.fit(choices, labels, groups, classes=int(labels.max()) + 1, **settings)


def odds(x, labels, groups=None):
    log_NQ = taught(x, labels, groups).log_NQ
    return log_NQ[:, 1] - log_NQ[:, 0]


def test_a_signal_is_found():
    x = records()
    labels = (x[:, 0] + x[:, 1] > 3).astype(np.int64)
    assert roc_auc_score(labels, odds(x, labels)) > 0.95
    assert np.allclose(np.exp(taught(x, labels).log_NQ).sum(axis=1), 1, atol=1e-5)


def test_of_several_features_those_that_say_most_are_read():
    x = records()
    labels = (x[:, 0] + x[:, 1] > 3).astype(np.int64)
    chosen = taught(x, labels, others=[records(seed=7)])
    assert (chosen.log_NQ == taught(x, labels).log_NQ).all()


def test_known_answers_stay_only_where_they_are_no_worse():
    x = records()
    labels = (x[:, 0] + x[:, 1] > 3).astype(np.int64)
    alone = taught(x, labels).log_NQ
    right = np.where(np.eye(2)[labels] > 0, np.log(0.999), np.log(0.001)).astype(np.float32)
    assert (taught(x, labels, known_NQ=right).log_NQ == right).all()
    shares = np.log(np.full((len(x), 2), 0.5, dtype=np.float32))
    assert (taught(x, labels, known_NQ=shares).log_NQ == alone).all()


def test_labels_without_a_signal_cannot_be_read_off_the_scores():
    """A model that saw the record would know its label by heart: all records differ."""
    x = records()
    labels = np.random.default_rng(1).integers(0, 2, len(x))
    auc = roc_auc_score(labels, odds(x, labels))
    assert 0.4 < auc < 0.6


def test_records_of_one_group_are_held_out_together():
    """Copies of a record under one entity: with its copies in the fit, the random label could be looked up."""
    x = np.repeat(records(300), 5, axis=0)
    labels = np.repeat(np.random.default_rng(2).integers(0, 2, 300), 5)
    groups = np.repeat(np.arange(300), 5)
    together = roc_auc_score(labels, odds(x, labels, groups))
    apart = roc_auc_score(labels, odds(x, labels))
    assert 0.35 < together < 0.65 < apart


def test_trees_stop_where_they_no_longer_help_records_of_other_groups(monkeypatch):
    """Copies of a record have one random label: seen from within their groups, more trees always help."""
    monkeypatch.setattr(teacher, "FEW_RECORDS", 100)
    x = np.repeat(records(300), 5, axis=0)
    labels = np.repeat(np.random.default_rng(2).integers(0, 2, 300), 5)
    apart = taught(x, labels)
    together = taught(x, labels, np.repeat(np.arange(300), 5))
    count = [fitted.folds[0].models[1].n_iter_ for fitted in (apart, together)]
    assert count[0] > 200 and count[1] < 20, count
    assert {fold.models[1].n_iter_ for fold in together.folds.values()} == {count[1]}


def test_the_first_trees_answer_as_if_there_were_no_others():
    x, labels = records(300), np.random.default_rng(6).integers(0, 3, 300)
    many, few = (boosted_trees(trees, seed=0, unordered_F=np.zeros(12, dtype=bool)).fit(x, labels) for trees in (9, 4))
    assert (FirstTrees(many, 4).predict_proba(x) == few.predict_proba(x)).all()


def test_unlabelled_records_get_scores_too():
    x = records()
    labels = (x[:, 0] > 1).astype(np.int64)
    partly = np.where(np.arange(len(x)) % 3 == 0, -1, labels)
    assert roc_auc_score(labels[partly < 0], odds(x, partly)[partly < 0]) > 0.95


def test_many_classes_have_a_probability_each():
    x = records()
    log_NQ = taught(x, x[:, 3].astype(np.int64)).log_NQ
    assert log_NQ.shape == (1_500, 4)
    assert (log_NQ.argmax(axis=1) == x[:, 3]).mean() > 0.95


def test_probabilities_are_those_of_the_table_although_a_frequent_class_is_sampled_down(monkeypatch):
    monkeypatch.setattr(teacher, "CLASS_FLOOR", 10)
    monkeypatch.setattr(teacher, "CLASS_RATIO", 2)
    x = records(6_000)
    labels = (np.random.default_rng(3).random(len(x)) < 0.05).astype(np.int64)
    assert 0.03 < np.exp(taught(x, labels).log_NQ[:, 1]).mean() < 0.07


def test_mixed_records_take_their_values_from_records_of_the_same_likely_class():
    x = records()
    labels = (x[:, 0] > 1).astype(np.int64)
    fitted = taught(x, labels)
    mixed, log_MQ = fitted.mixed(x, np.arange(len(x)), 500, seed=0)
    assert mixed.shape == (500, 12) and mixed.dtype == x.dtype and log_MQ.shape == (500, 2)
    assert len(np.unique(np.vstack([x, mixed]), axis=0)) > len(np.unique(x, axis=0)), "some are new"
    # the label follows from the first slot, which both parents agree on, and the models of the folds know it
    assert ((log_MQ[:, 1] > log_MQ[:, 0]) == (mixed[:, 0] > 1)).mean() > 0.98
    again, _ = fitted.mixed(x, np.arange(len(x)), 500, seed=0)
    assert (again == mixed).all()


def test_mixed_records_give_away_no_label_of_their_parents_and_have_none_among_other_rows():
    """Labels at random, no two records alike: a model that saw a parent would know its label by heart."""
    x, rows = np.random.default_rng(5).integers(0, 200, (1_500, 12)).astype(np.uint8), np.arange(0, 1_500, 2)
    labels = np.random.default_rng(4).integers(0, 2, len(x))
    mixed, log_MQ = taught(x, labels).mixed(x, rows, 2_000, seed=0)
    same_MN = (mixed[:, None] == x).sum(axis=2)
    first_M = same_MN.argmax(axis=1)  # at least half of a record is of one parent
    clear_M = same_MN.max(axis=1) >= 6
    assert clear_M.sum() > 500
    assert 0.4 < roc_auc_score(labels[first_M[clear_M]], (log_MQ[:, 1] - log_MQ[:, 0])[clear_M]) < 0.6
    assert not (first_M[clear_M] % 2).any(), "rows that training stops on"


def test_it_answers_for_records_it_has_not_seen():
    x = records()
    fitted = taught(x, (x[:, 0] > 1).astype(np.int64))
    other = records(seed=1)
    log_NQ = fitted.answers(other)
    assert ((log_NQ[:, 1] > log_NQ[:, 0]) == (other[:, 0] > 1)).mean() > 0.98
    nothing_learned = Teacher(np.log(np.full((4, 2), 0.5, dtype=np.float32)), np.zeros(4, dtype=np.int64), {}, 0.0)
    assert np.allclose(np.exp(nothing_learned.answers(other)), 0.5)


def test_validation_records_that_are_given_count_for_the_label_too(monkeypatch):
    """They come without labels, so that the teacher answers for them, on the scale of the training records."""
    seen = []

    class Watched(Trainer):
        def run(self):
            seen.append(self)
            return super().run()

    monkeypatch.setattr(coder, "Trainer", Watched)
    x, validation = records(), records(200, seed=1)
    layout = Layout(tuple(Slot(f"f{number}", "number", 3) for number in range(x.shape[1])))
    labels = np.where(x[:, 0] > 1, "yes", "no").astype(object)
    config = TokenizerConfig(steps=20, hidden=16, latent=8)
    coder.SlotCoder(config, device="cpu").fit(x, layout, labels_N=labels, validation_ND=validation)
    (trainer,) = seen
    assert len(trainer.x_ND) == len(trainer.lessons.training_NQ) == len(x), "nothing else is held out"
    assert ((trainer.lessons.validation_NQ[:, 0].numpy() > 0) == (validation[:, 0] > 1)).mean() > 0.98


def test_the_head_learns_standardised_odds_of_two_classes_and_probabilities_of_more():
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], dtype=np.float32)
    held_out = np.array([False, False, True])
    two = Lessons.of(np.log(p), held_out, np.zeros((1, 2), dtype=np.uint8), np.log(p[:1]))
    odds_N = np.log(p[:, 1] / p[:, 0])
    expected = (odds_N - odds_N.mean()) / odds_N.std()
    assert np.allclose(two.training_NQ[:, 0], expected[:2], atol=1e-5)
    assert np.allclose(two.validation_NQ[:, 0], expected[2:], atol=1e-5)
    assert np.allclose(two.mixed_MQ[:, 0], expected[:1], atol=1e-5), "mixed records are on the same scale"
    three = np.log(np.full((3, 3), 1 / 3, dtype=np.float32))
    assert Lessons.of(three, held_out, np.zeros((1, 2), dtype=np.uint8), three[:1]).training_NQ.shape == (2, 3)


def test_a_class_of_one_record_does_no_harm():
    x = records(60)
    labels = np.zeros(60, dtype=np.int64)
    labels[7] = 1
    assert taught(x, labels).log_NQ.min() >= np.log(LEAST) - 1


def test_folds_are_numbered_in_the_progress(monkeypatch):
    titles, notes = [], []

    @contextmanager
    def progress(what, total):
        titles.append((what, total))
        yield lambda steps, note=None: notes.append(note) if note else None

    monkeypatch.setattr(teacher, "progress", progress)
    monkeypatch.setattr(teacher, "FOLDS", 3)
    x = records(60)
    taught(x, (x[:, 0] > 1).astype(np.int64))
    assert titles == [("learning which features predict the label", 3)]
    assert notes == ["fold 1 of 3", "fold 2 of 3", "fold 3 of 3"]


def blind(count):
    """A teacher that knows nothing: both classes are as probable for every row."""
    return np.full((count, 2), np.log(0.5), dtype=np.float32)


def test_words_teach_what_the_fields_do_not_say():
    rng = np.random.default_rng(0)
    labels_N = rng.integers(0, 2, 400)
    words_NV = csr_matrix(np.eye(3)[np.where(rng.random(400) < 0.9, labels_N, 2)])
    log_NQ = taught_by_words(blind(400), words_NV, labels_N, np.arange(400))
    assert (log_NQ.argmax(axis=1) == labels_N).mean() > 0.85
    assert np.allclose(np.exp(log_NQ).sum(axis=1), 1, atol=1e-4)


def test_words_without_meaning_leave_the_teacher_as_it_is():
    rng = np.random.default_rng(1)
    labels_N = rng.integers(0, 2, 400)
    words_NV = csr_matrix(rng.random((400, 300)))
    sure_NQ = np.log(np.where(np.eye(2)[labels_N] == 1, 0.9, 0.1)).astype(np.float32)
    assert np.allclose(taught_by_words(sure_NQ, words_NV, labels_N, np.arange(400)), sure_NQ, atol=1e-5)


def test_a_word_that_only_one_group_has_teaches_nothing_about_that_group():
    """Each group has its own word and label: from other groups, nothing can be known about it."""
    groups_N = np.repeat(np.arange(40), 10)
    labels_N = np.random.default_rng(2).permutation(np.arange(40) % 2)[groups_N]
    log_NQ = taught_by_words(blind(400), csr_matrix(np.eye(40)[groups_N]), labels_N, groups_N)
    assert np.abs(np.exp(log_NQ) - 0.5).max() < 0.2


def test_rows_without_a_label_are_taught_too():
    labels_N = np.tile([0, 1, -1], 100)
    words_NV = csr_matrix(np.eye(2)[np.tile([0, 1, 1], 100)])
    log_NQ = taught_by_words(blind(300), words_NV, labels_N, np.arange(300))
    assert (log_NQ[labels_N == -1].argmax(axis=1) == 1).all()
