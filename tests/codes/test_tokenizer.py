"""The tokenizer as a user sees it: the paper's toy example, round trips, determinism, resuming, files."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from tefm import Field, RecordTokenizer, Schema, TokenizerConfig
from tefm.base.errors import ArtefactError, InputError, NotFittedError, SettingsError
from tefm.base.files import write_json, write_manifest
from tefm.codes.coder import SlotCoder
from tefm.codes.tokenizer import KIND, code_columns, encode_to_parquet, read_codes
from tefm.tables.layout import Layout, Slot

TINY = {"levels": 2, "entries": 8, "latent": 8, "hidden": 32, "steps": 150}
#: Where it does not matter what is learned.
SHORT = {**TINY, "steps": 30}


def table(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, rows)
    return pl.DataFrame(
        {
            "who": [f"p{i // 4}" for i in range(rows)],
            "size": kind * 10 + rng.normal(size=rows),
            "colour": [("red", "green", "blue", "white")[k] for k in kind],
            "marks": [";".join(["ab"[k % 2], "xy"[k // 2]]) for k in kind],
            "bad": ["yes" if k == 3 else "no" for k in kind],
        }
    )


SCHEMA = Schema(
    fields=(
        Field(name="size", kind="number", buckets=4),
        Field(name="colour", kind="category"),
        Field(name="marks", kind="set", delimiter=";"),
    ),
    entity="who",
    label="bad",
)


@pytest.fixture(scope="module")
def fitted():
    return RecordTokenizer(**TINY).fit(table(), SCHEMA)


# ---- the paper's toy example ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.all) for seed in (1, 2))])
def test_toy_example_of_the_paper(seed):
    """Eight patterns of six bits, K=3, C=2: eight distinct codes, exact reconstruction."""
    patterns = np.array([[a, a, b, b, c, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], dtype=np.uint8)
    layout = Layout(tuple(Slot(f"x{i}", "flag", 1) for i in range(6)))
    config = TokenizerConfig(levels=3, entries=2, latent=8, hidden=32, steps=600, seed=seed)
    coder = SlotCoder(config, device="cpu").fit(np.tile(patterns, (32, 1)), layout)
    codes = coder.encode(patterns)
    assert len({tuple(code) for code in codes.tolist()}) == 8
    assert (coder.decode(codes) == patterns).all()


# ---- forward and backward ---------------------------------------------------------------------------------------


def test_separable_records_are_reconstructed(fitted):
    back = fitted.decode(fitted.encode(table(seed=1)))
    truth = table(seed=1)
    assert (back["colour"] == truth["colour"]).mean() == 1
    assert (back["marks"].list.sort() == truth["marks"].str.split(";").list.sort()).mean() == 1
    assert back.columns == ["size", "colour", "marks"]


def test_codes_are_small_integers(fitted):
    codes = fitted.encode(table())
    assert codes.shape == (400, 2) and codes.dtype == np.uint16 and codes.max() < 8


def test_codes_do_not_depend_on_what_else_is_in_the_table(fitted):
    whole = fitted.encode(table())
    assert (fitted.encode(table()[100:137]) == whole[100:137]).all()


def test_an_empty_table_has_no_codes(fitted):
    assert fitted.encode(table()[:0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("codes", "part"),
    [
        (np.array([[0, 8]]), "0 to 7"),
        (np.array([[-1, 0]]), "0 to 7"),
        (np.array([[0, 0, 0]]), "2 numbers"),
        (np.array([0, 0]), "2 numbers"),
        (np.array([[0.5, 1.0]]), "whole numbers"),
    ],
)
def test_invalid_codes_are_refused(fitted, codes, part):
    with pytest.raises(InputError, match=part):
        fitted.decode(codes)


def test_before_fit():
    with pytest.raises(NotFittedError, match="fit"):
        RecordTokenizer().encode(table())


def test_a_setting_of_earlier_versions_may_be_stored_and_is_explained_otherwise(explained):
    stored = TokenizerConfig().model_dump() | {"patience": 9, "straight_through": "identity", "settle": 2}
    assert (
        TokenizerConfig.stored(stored) == TokenizerConfig() == TokenizerConfig.checked({"straight_through": "identity"})
    )
    explained(SettingsError, lambda: RecordTokenizer(inputs="scaled"), "inputs", "recipe: paper")
    explained(SettingsError, lambda: RecordTokenizer(straight_through="rotation"), "straight_through", "leave it out")


#: What version 0.1.0 stored of the paper's preset, as far as it is not a setting any more.
PAPERS = {
    "blocks": 0, "inputs": "scaled", "likelihood": "squares", "member_weight": 1.0, "rare": False,
    "ordinal_weight": 0.0, "label_weight": 0.0, "codebook": "gradient", "settle": 0, "mask_share": 0.0,
    "warm_share": 0.0, "batch": 16, "checks": 20, "beam": 1,
}  # fmt: skip


def test_a_stored_tokenizer_of_the_papers_preset_encodes_as_before(tmp_path):
    paper = RecordTokenizer(preset="paper", **SHORT).fit(table(), SCHEMA)
    folder, codes = paper.save(tmp_path / "paper"), paper.encode(table())
    body = json.loads((folder / "config.json").read_text())
    assert body.pop("recipe") == "paper"

    def stored(**changes):
        write_json(folder / "config.json", {**body, **PAPERS, **changes})
        write_manifest(folder, KIND, version="0.1.0", identity=paper.coder.identity)
        return RecordTokenizer.load(folder)

    assert stored().config == paper.config
    assert (stored().encode(table()) == codes).all() and stored().decode(codes).equals(paper.decode(codes))
    with pytest.raises(ArtefactError, match=r"'beam'[\s\S]*fit it again"):
        stored(blocks=1, inputs="values", likelihood="softmax", beam=2)


def test_every_setting_is_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "your-table.md").read_text(encoding="utf-8")
    section = page.split("### Settings of the tokenizer")[1].split("\n### ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == list(TokenizerConfig.model_fields)


def test_settings_are_checked():
    with pytest.raises(SettingsError, match="levels"):
        RecordTokenizer(levels=0)
    with pytest.raises(SettingsError, match="preset"):
        RecordTokenizer(preset="papier")
    with pytest.raises(SettingsError, match="not both"):
        RecordTokenizer(TokenizerConfig(), levels=3)


# ---- task-aware -------------------------------------------------------------------------------------------------


def test_task_aware_is_the_default_with_a_label_and_can_be_left_out(fitted):
    assert fitted.coder.classes_ == ("no", "yes")
    assert RecordTokenizer(**SHORT).fit(table(), SCHEMA, task_aware=False).coder.classes_ == ()
    assert RecordTokenizer(preset="paper", **SHORT).fit(table(), SCHEMA).coder.classes_ == ()


def test_task_aware_codes_keep_a_signal_that_plain_codes_drop():
    """One weak bit decides the label among strong ones: too little to be worth a code, unless it predicts the label."""
    rng = np.random.default_rng(0)
    x = rng.integers(1, 5, (3000, 9)).astype(np.uint8)
    x[:, 8] = rng.integers(0, 2, 3000)
    layout = Layout((*(Slot(f"n{i}", "category", 4) for i in range(8)), Slot("bit", "flag", 1)))
    labels = np.where(x[:, 8] == 1, "yes", "no").astype(object)

    def accuracy(labels_N):
        config = TokenizerConfig(levels=1, entries=8, latent=8, hidden=32, steps=300)
        coder = SlotCoder(config, device="cpu").fit(x, layout, labels_N=labels_N)
        code = coder.encode(x)[:, 0]
        shares = [np.mean(x[code == c, 8]) for c in np.unique(code)]
        return np.mean([max(s, 1 - s) for s in shares])

    assert accuracy(labels) > 0.95
    assert accuracy(None) < 0.8


def test_labels_may_be_missing():
    partly = table().with_columns(pl.when(pl.int_range(400) % 3 == 0).then(None).otherwise(pl.col("bad")).alias("bad"))
    assert RecordTokenizer(**SHORT).fit(partly, SCHEMA).coder.classes_ == ("no", "yes")


# ---- determinism and resuming -----------------------------------------------------------------------------------


def test_same_seed_same_codes():
    one, again, other = (RecordTokenizer(seed=seed, **SHORT).fit(table(), SCHEMA) for seed in (0, 0, 1))
    assert (again.encode(table()) == one.encode(table())).all()
    assert again.coder.identity == one.coder.identity != other.coder.identity


KILLED = """
import os, signal, sys
import tefm.codes.trainer as train
from test_tokenizer import SCHEMA, TINY, table
from tefm import RecordTokenizer
save = train.Trainer._save
def killing(self):
    save(self)
    if self.step >= 70:
        os.kill(os.getpid(), signal.SIGKILL)
train.Trainer._save = killing
RecordTokenizer(**TINY).fit(table(), SCHEMA, checkpoint=sys.argv[1])
"""


@pytest.mark.all
def test_killed_and_resumed_gives_the_same_weights(fitted, tmp_path):
    checkpoint = tmp_path / "run.checkpoint"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(checkpoint)], cwd=Path(__file__).parent, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert checkpoint.exists()
    resumed = RecordTokenizer(**TINY).fit(table(), SCHEMA, checkpoint=checkpoint)
    assert resumed.coder.history_.resumed_from == 70
    for name, value in fitted.coder.network.state_dict().items():
        assert torch.equal(value, resumed.coder.network.state_dict()[name]), name
    assert not checkpoint.exists()


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    checkpoint = tmp_path / "run.checkpoint"
    torch.save({"fingerprint": "another"}, checkpoint)
    with pytest.raises(SettingsError, match="other data or other settings"):
        RecordTokenizer(**TINY).fit(table(), SCHEMA, checkpoint=checkpoint)
    checkpoint.write_bytes(b"half a file")
    with pytest.raises(ArtefactError, match="cannot be read"):
        RecordTokenizer(**TINY).fit(table(), SCHEMA, checkpoint=checkpoint)


@pytest.mark.all
def test_training_stops_early_when_validation_gets_no_better():
    """Noise can be learned by heart, which validation records do not reward."""
    noise = np.random.default_rng(0).integers(0, 5, (120, 8)).astype(np.uint8)
    layout = Layout(tuple(Slot(f"n{i}", "category", 4) for i in range(8)))
    sizes = {"levels": 2, "entries": 8, "latent": 8, "hidden": 64}
    config = TokenizerConfig(**sizes, steps=1000, learning_rate=5e-3)
    history = SlotCoder(config, device="cpu").fit(noise, layout).history_
    assert history.stopped_at < 1000
    assert history.best_step == min(history.validation, key=lambda pair: pair[1])[0]


def test_diverging_training_says_so():
    with pytest.raises(SettingsError, match=r"diverged[\s\S]*learning_rate=1e\+29"):
        RecordTokenizer(**TINY, learning_rate=1e30).fit(table(), SCHEMA)


# ---- on disk ----------------------------------------------------------------------------------------------------


def test_save_and_load(fitted, tmp_path):
    fitted.save(tmp_path / "tok")
    loaded = RecordTokenizer.load(tmp_path / "tok")
    assert (loaded.encode(table()) == fitted.encode(table())).all()
    assert loaded.decode(fitted.encode(table())).equals(fitted.decode(fitted.encode(table())))
    assert loaded.schema == fitted.schema and loaded.coder.classes_ == fitted.coder.classes_
    assert {path.name for path in (tmp_path / "tok").iterdir()} == {
        "manifest.json", "config.json", "layout.json", "vectoriser.json", "learned.json", "network.safetensors",
    }  # fmt: skip
    fitted.save(tmp_path / "tok")  # our own folder may be replaced
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep me")
    with pytest.raises(InputError, match="not written by tefm"):
        fitted.save(tmp_path / "notes")
    assert (tmp_path / "notes" / "mine.txt").read_text() == "keep me"


def test_damaged_and_foreign_folders_are_refused(fitted, tmp_path):
    with pytest.raises(ArtefactError, match="no manifest"):
        RecordTokenizer.load(tmp_path)
    folder = fitted.save(tmp_path / "tok")
    weights = folder / "network.safetensors"
    body = bytearray(weights.read_bytes())
    body[-1] ^= 1
    weights.write_bytes(body)
    with pytest.raises(ArtefactError, match=r"hash differs[\s\S]*network\.safetensors|network\.safetensors[\s\S]*"):
        RecordTokenizer.load(folder)
    folder = fitted.save(tmp_path / "other")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "kind": "something else"}))
    with pytest.raises(ArtefactError, match="something else"):
        RecordTokenizer.load(folder)


# ---- streams ----------------------------------------------------------------------------------------------------


def test_folder_of_parquet_to_folder_of_parquet(fitted, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for part in range(3):
        table()[part * 100 : (part + 1) * 100].write_parquet(source / f"part-{part}.parquet")
    assert encode_to_parquet(fitted, source, target) == 300
    assert sorted(path.name for path in target.iterdir()) == [f"part-{part}.parquet" for part in range(3)]
    assert (read_codes(target, fitted.coder) == fitted.encode(table()[:300])).all()
    assert pl.read_parquet(target / "part-1.parquet").columns == ["who", "bad", *code_columns(fitted.coder)]
    with pytest.raises(InputError, match="cannot replace"):
        encode_to_parquet(fitted, source, source)


def test_a_failed_encode_leaves_nothing_half_written(fitted, tmp_path):
    bad = tmp_path / "bad.csv"
    lines = table().write_csv().splitlines()
    lines[-1] = lines[-1].replace(lines[-1].split(",")[1], "huge")
    bad.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="huge"):
        encode_to_parquet(fitted, bad, tmp_path / "codes.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]
