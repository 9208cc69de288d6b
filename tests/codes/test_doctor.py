"""The doctor finds each planted fault, and none where there is none."""

import numpy as np

from tefm.codes.coder import SlotCoder
from tefm.codes.config import TokenizerConfig
from tefm.codes.doctor import examine
from tefm.tables.layout import Layout, Slot

LAYOUT = Layout(
    (*(Slot(f"n{i}", "category", 4) for i in range(4)), Slot("dx", "flag", 1, "a"), Slot("dx", "flag", 1, "b"))
)


def records(rows=2_000, seed=0):
    """Four fields that go together, and two diagnoses that follow them."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(1, 5, rows)
    x = np.repeat(kind[:, None], 6, axis=1).astype(np.uint8)
    x[:, 4], x[:, 5] = kind == 1, kind > 2
    return x, np.where(kind > 2, "yes", "no").astype(object)


def coder(x, **settings):
    config = TokenizerConfig.preset(
        "default", **({"levels": 2, "entries": 4, "latent": 8, "hidden": 32, "steps": 200} | settings)
    )
    return SlotCoder(config, device="cpu").fit(x, LAYOUT)


def problems(examination):
    return " | ".join(f"{finding.problem} → {finding.remedy}" for finding in examination.findings)


def test_good_codes_get_no_warning():
    x, labels = records()
    half = np.arange(len(x)) % 2 == 0
    examination = examine(coder(x, levels=1), x, labels_N=labels, train_N=half)
    assert examination.fidelity.slot_accuracy == 1.0
    assert examination.ceiling is not None and examination.ceiling["codes"].auroc > 0.99
    assert not examination.findings, problems(examination)


def test_a_lost_field_is_named_with_a_remedy():
    x, _ = records()
    x[:, 3] = np.random.default_rng(1).integers(1, 5, len(x))  # independent of everything: four entries cannot hold it
    text = problems(examine(coder(x, levels=1), x))
    assert "lost" in text and "n3" in text and "--levels 2" in text


def test_a_collapsed_level_gets_a_warning():
    x, _ = records()
    good = coder(x, entries=8)
    good.network.quantiser.codebooks_KCd.data[0, 1:] = 1e6  # every record picks the one entry that is left
    text = problems(examine(good, x))
    assert "level 1 has collapsed" in text and "--entries" in text


def test_few_records_are_no_collapse():
    x, _ = records()
    x[:, 3] = np.random.default_rng(1).integers(1, 5, len(x))
    good = coder(x, levels=1, entries=16)
    few = np.unique(x, axis=0)[[0, 4, 8]]  # three kinds
    examination = examine(good, few)
    assert examination.use[0].used == 3, "as many as they can"
    assert "collapsed" not in problems(examination) and "never used" not in problems(examination)


def test_records_that_repeat_are_no_collapse():
    x, _ = records()
    x[:, 3] = np.random.default_rng(1).integers(1, 5, len(x))
    good = coder(x, levels=1, entries=16)
    examination = examine(good, np.concatenate([np.repeat(x[:1], 50_000, axis=0), x]))  # one record nearly always
    assert examination.use[0].perplexity < 2, "used as if there were one entry"
    assert "collapsed" not in problems(examination)


def test_a_signal_that_the_codes_drop_gets_a_warning():
    x, _ = records()
    hidden = np.random.default_rng(2).integers(1, 5, len(x))
    x[:, 3] = hidden
    labels = np.where(hidden > 2, "yes", "no").astype(object)
    half = np.arange(len(x)) % 2 == 0
    text = problems(examine(coder(x, levels=1), x, labels_N=labels, train_N=half))
    assert "the codes can predict at AUROC" in text and "share their code with a record of another label" in text


def test_json_is_plain():
    import json

    x, _ = records(200)
    body = json.loads(json.dumps(examine(coder(x), x).to_dict()))
    assert body["ceiling"] is None and body["task_aware"] is False
    assert [level["level"] for level in body["use"]] == [1, 2]
