"""`python -m tefm_bench --quick`: every table end to end, on a miniature backbone."""

from __future__ import annotations

import gc
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape
from sklearn.metrics import roc_auc_score
from support.miniatures import miniature
from tefm_bench import alignment
from tefm_bench.__main__ import app
from tefm_bench.data import Sources
from tefm_bench.experiments import Setup
from tefm_bench.make_tables import Request, run
from tefm_bench.measurement import Bench, Measurement
from tefm_bench.table import Table
from tefm_bench.table_runs import TableRun
from tefm_bench.tables import TABLES
from tefm_bench.tables.language import LABEL_HEAD, aligned
from tefm_bench.tables.users import joint_run
from tefm_bench.tables.words import run_of, runs_of
from typer.testing import CliRunner

from tefm.base.errors import InputError, SettingsError, TefmError
from tefm.tabular.teacher import Teacher

CLINICAL = "Diabetes130"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the backbone, the measurements and the tables."""
    folder = tmp_path_factory.mktemp("bench")
    miniature("llama", folder / "mini")
    return folder


@pytest.fixture(scope="module")
def arguments(folder: Path, flows: Path) -> list[str]:
    """The command, with everything in one folder."""
    data = ["--data", "diabetes130", "--data", f"cicids2017={flows}"]
    paths = ["--runs", str(folder / "runs"), "--out", str(folder / "results")]
    return [*data, "--backbone", str(folder / "mini"), "--seeds", "1", "--quick", *paths]


@dataclass(frozen=True)
class QuickRun:
    """All tables of a quick run, and the measurements that they are made of."""

    bench: Bench
    setup: Setup
    tables: dict[str, Table]
    errors: list[str]
    page: str


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A teacher's fit, computed once for equal arrays: tokenizers of the same records share their teacher."""
    results: dict[Any, Any] = {}

    def call(choices: Any, *arrays: Any, **settings: Any) -> Any:
        columns = tuple((features.x_NF.tobytes(), features.kinds) for features in choices)
        key = (columns, *(array.tobytes() for array in arrays), repr(settings))
        if key not in results:
            results[key] = function(choices, *arrays, **settings)
        return results[key]

    return call


@pytest.fixture(scope="module")
def quick_run(folder: Path, arguments: list[str], flows: Path) -> QuickRun:
    html = folder / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "MEASURED", 8)  # measuring the alignment of long records is slow
        patch.setattr(Teacher, "fit", remembered(Teacher.fit))
        gc.freeze()  # every training ends with a garbage collection, which is slow after so many imports
        done = CliRunner().invoke(app, [*arguments, "--html", str(html), "--json"], catch_exceptions=False)
        gc.unfreeze()
    assert done.exit_code == 0, done.output
    body = json.loads(done.stdout)
    return QuickRun(
        Bench(
            folder / "runs" / "quick", Sources(folder / "runs" / "quick" / "data", {"cicids2017": flows}, quick=True)
        ),
        Setup(("diabetes130-open", "ddos", "portscan", "attack"), (10,), (str(folder / "mini"),), quick=True),
        {name: Table.load(Path(file)) for name, file in body["tables"].items()},
        [failure["error"] for failure in body["failed"]],
        html.read_text(encoding="utf-8"),
    )


@dataclass(frozen=True)
class Cell:
    """A cell of a table, and the one stored number that it shows."""

    table: str
    #: the keys of its row, after the data set
    keys: tuple[str, ...]
    column: str
    measurement: Callable[[Setup], Measurement]
    #: the way to the number in the figures of the measurement; a dict picks the item of a list with these values
    path: tuple[str | int | dict[str, Any], ...]
    data: str = CLINICAL


def codes(setup: Setup, recipe: Any = "task-aware", **settings: Any) -> Any:
    return setup.codes("diabetes130-open", 10, recipe, **settings)


def rationales(setup: Setup, **settings: Any) -> Any:
    return setup.rationales(setup.prediction(codes(setup)), **settings)


AUROC = ("tunes", 0, "test", "auroc", "value")
SHAP = {"strategy": "SHAP", "of": "present", "retention": 0.05}
CELLS = [
    Cell("reconstruction", ("task-aware",), "recall", codes, ("test", "recall")),
    Cell("reconstruction", ("task-aware",), "ceiling", lambda s: s.ceiling(codes(s)), ("codes", "auroc")),
    Cell(
        "alignment",
        ("unsupervised", "ours"),
        "exact_c",
        lambda s: aligned(s, "diabetes130-open", 10, "unsupervised", "default"),
        ("alignment", "exact", 2),
    ),
    Cell(
        "alignment",
        ("the paper's", "the paper's whole recipe"),
        "slot_accuracy",
        lambda s: s.papers("diabetes130-open", 10),
        ("alignment", "slot_accuracy"),
    ),
    Cell("hierarchy", ("task-aware", "a"), "ratio", codes, ("hierarchy", 0, "ratio")),
    Cell(
        "hierarchy",
        ("task-aware", "a"),
        "intra_sd",
        codes,
        ("hierarchy", 0, "intra_std"),
    ),
    Cell("prediction", ("mini (1 blocks) on task-aware codes",), "auroc", lambda s: s.prediction(codes(s)), AUROC),
    Cell(
        "crossdomain",
        ("mini (1 blocks) on the last 64 tokens of the text",),
        "tokens",
        lambda s: s.text("ddos", 10),
        ("tunes", 0, "tokens"),
        "DDoS",
    ),
    Cell(
        "prediction",
        ("the paper's whole recipe, mini (whole)",),
        "tokens",
        lambda s: s.papers("diabetes130-open", 10),
        ("tunes", 0, "tokens"),
    ),
    Cell(
        "crossdomain",
        ("the paper's whole recipe, mini (whole)",),
        "auroc",
        lambda s: s.papers("ddos", 10),
        AUROC,
        "DDoS",
    ),
    Cell("prediction", (LABEL_HEAD,), "auroc", lambda s: s.label_head(codes(s)), ("auroc",)),
    Cell(
        "prediction",
        ("LightGBM on slots",),
        "macro_f1",
        lambda s: s.baseline("diabetes130-open", 10, "lightgbm"),
        ("test_calibrated", "macro_f1", "value"),
    ),
    Cell(
        "crossdomain",
        ("majority class",),
        "accuracy",
        lambda s: s.baseline("ddos", 10, "majority"),
        ("test_calibrated", "accuracy", "value"),
        "DDoS",
    ),
    Cell(
        "rationalization",
        ("present", "5%", "SHAP"),
        "agreement",
        lambda s: rationales(s, compare=True),
        ("rows", SHAP, "agreement"),
    ),
    Cell(
        "pretraining",
        ("task-aware", "aligned first"),
        "auroc",
        lambda s: aligned(s, "diabetes130-open", 10, "task-aware", "default"),
        AUROC,
    ),
    Cell(
        "shapes",
        ("unsupervised", "2", "256"),
        "nmse",
        lambda s: codes(s, "unsupervised", levels=2, entries=256),
        ("test", "nmse"),
    ),
    Cell(
        "tokens",
        ("codes, full prompt", "mini"),
        "mean",
        lambda s: s.tokens("diabetes130-open"),
        ("rows", {"format": "codes, full prompt"}, "mean"),
    ),
    Cell(
        "smallest",
        ("SHAP",),
        "default",
        lambda s: rationales(s, compare=True),
        ("growth", "SHAP", "default"),
    ),
    Cell(
        "smallest",
        ("greedy search with the language model",),
        "milliseconds",
        lambda s: s.cost(rationales(s, compare=True)),
        ("greedy search with the language model",),
    ),
    Cell(
        "tables",
        ("trees alone",),
        "accuracy",
        lambda s: s.beside_run("nsl_kdd", 10),
        ("methods", "trees", "other", "scores", "accuracy", "value"),
        "NSL-KDD, KDDTest+",
    ),
    Cell(
        "tables",
        ("XGBoost",),
        "macro_f1",
        lambda s: s.baseline_run("nsl_kdd", 10, "xgboost"),
        ("methods", "xgboost", "other", "scores", "macro_f1", "value"),
        "NSL-KDD, KDDTest+",
    ),
    Cell(
        "questions",
        ("mini, whole", "pretrained"),
        "in_place",
        lambda s: runs_of(s, "bpic2012", s.backbones[0], None, "pretrained")[0],
        ("in_place", "auroc"),
        "BPIC 2012, next event",
    ),
    Cell(
        "text",
        ("TEFM, codes and text",),
        "auroc",
        lambda s: run_of(s, "kev_vendors", "codes and text", 10),
        ("scores", "auroc", "value"),
        "CISA KEV, by vendor",
    ),
    Cell(
        "text",
        ("TEFM, codes and text, trees beside",),
        "share",
        lambda s: run_of(s, "kev_vendors", "trees beside", 10),
        ("share",),
        "CISA KEV, by vendor",
    ),
    Cell(
        "text",
        ("LightGBM on fields and sentence embeddings",),
        "auroc",
        lambda s: run_of(s, "kev_vendors", "lightgbm and embeddings", 10),
        ("scores", "auroc", "value"),
        "CISA KEV, by vendor",
    ),
    Cell(
        "heldout",
        ("logistic regression",),
        "ece",
        lambda s: s.baseline_run("diabetes130_heldout", 10, "logistic", sample=False),
        ("methods", "logistic", "other", "scores", "ece", "value"),
        "Diabetes130, patients set aside",
    ),
    Cell(
        "domains",
        ("one model for all",),
        "auroc",
        lambda s: joint_run(s, 10),
        ("domains", "unsw_nb15", "methods", "tefm", "test", "scores", "auroc", "value"),
        "UNSW-NB15",
    ),
    Cell(
        "explanations",
        ("task-aware", "ours"),
        "default",
        lambda s: s.explanation_run("diabetes130_mortality", 10, "task-aware"),
        ("default",),
        "Diabetes130, death",
    ),
    Cell(
        "cards",
        (),
        "default",
        lambda s: s.card_run("diabetes130_mortality", 10),
        ("default",),
        "Diabetes130, death",
    ),
]


def container_of(figures: Any, path: tuple[str | int | dict[str, Any], ...]) -> Any:
    """What holds the number at the end of a path."""
    for step in path[:-1]:
        if isinstance(step, dict):
            (figures,) = [item for item in figures if {name: item[name] for name in step} == step]
        else:
            figures = figures[step]
    return figures


def values_of(table: Table) -> dict[tuple[tuple[str, ...], str], tuple[float, ...]]:
    """Every measured value, by the keys of its row and its column."""
    return {
        (tuple(row.keys.values()), column): figure.values
        for row in table.rows
        for column, figure in row.figures.items()
    }


@pytest.mark.all
def test_every_table_is_made_and_on_the_page(quick_run: QuickRun) -> None:
    assert all(error.startswith("this baseline needs TabPFN") for error in quick_run.errors), quick_run.errors
    assert set(quick_run.tables) == set(TABLES) == {cell.table for cell in CELLS} | {"published"}
    for name, table in quick_run.tables.items():
        assert table.made["quick"] is True and "torch" in table.made["Versions"]
        kinds = [settings["kind"] for settings in table.measured]
        assert kinds == [m.KIND for m in TABLES[name].needs(quick_run.setup) if quick_run.bench.path(m).exists()]
        assert re.search(rf"<h2[^>]*>\s*{re.escape(escape(table.title))}", quick_run.page), name
        # models of three steps may give one answer to all, and then have no rationales to measure
        empty = {
            "smallest": {"slots", "mean_slots", "comprehensiveness", "flips"},
            "explanations": {"size", "coverage", "opposite"},
            # without a card that a check bears out
            "cards": {"real", "coverage", "conditions", "within_made_up", "within_real", "random"},
            "questions": {"half_width", "ahead", "ahead_half_width", "ahead_of_trees_half_width"},
        }.get(name, set())
        assert {column.name for column in table.columns} - empty <= {column for _, column in values_of(table)}, name
        header, lines = table.cells()
        assert all(str(escape(text)) in quick_run.page for line in (header, *lines) for text in line), name


@pytest.mark.all
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.table}-{cell.column}")
def test_a_cell_shows_its_measurement_and_no_other_cell_does(cell: Cell, quick_run: QuickRun, tmp_path: Path) -> None:
    measurement = cell.measurement(quick_run.setup)
    body = json.loads(quick_run.bench.path(measurement).read_text(encoding="utf-8"))
    container, key = container_of(body["figures"], cell.path), cell.path[-1]
    place = ((cell.data, *cell.keys), cell.column)
    values = values_of(quick_run.tables[cell.table])
    shown, *further = values[place]  # of further fits
    assert shown == container[key]

    container[key] = 0.123456
    shutil.copytree(quick_run.bench.folder / "measurements", tmp_path / "measurements")
    changed = Bench(tmp_path, quick_run.bench.sources)
    changed.path(measurement).write_text(json.dumps(body), encoding="utf-8")
    expected = {**values, place: (0.123456, *further)}
    assert values_of(TABLES[cell.table].table(quick_run.setup, changed.figures)) == expected


@pytest.mark.all
def test_the_label_head_alone(quick_run: QuickRun) -> None:
    """Its AUROC, computed again from the weights of the tokenizer: the single output is the log-odds of survival."""
    measurement = quick_run.setup.label_head(codes(quick_run.setup))
    codes_NK, tokenizer = measurement.codes.open(quick_run.bench)
    assert tokenizer.classes_ == ("died", "survived")
    head = tokenizer.network.head
    assert head is not None and head.out_features == 1
    task = measurement.codes.split_data(quick_run.bench).tasks["mortality"]
    test = task.of("test")
    latent_Sd = tokenizer.embed(codes_NK[task.sequences.last[test]])
    survival_S = latent_Sd @ head.weight.detach().numpy()[0] + head.bias.detach().numpy()
    died_S = task.labels_S[test] == task.classes.index("died")
    figures = quick_run.bench.figures(measurement)
    assert figures == {"auroc": pytest.approx(roc_auc_score(died_S, -survival_S), abs=1e-9), "sequences": len(test)}


@pytest.mark.all
def test_nothing_is_measured_twice(quick_run: QuickRun, arguments: list[str]) -> None:
    folder = quick_run.bench.folder / "measurements"
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    done = CliRunner().invoke(app, [*arguments, "prediction", "pretraining", "--json"], catch_exceptions=False)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    for name, file in json.loads(done.stdout)["tables"].items():
        assert Table.load(Path(file)).rows == quick_run.tables[name].rows


def test_the_command_explains_itself() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0 and "python -m tefm_bench prediction" in done.stdout.replace("\n", " ")


def test_without_measurements_only_the_published_figures_are_shown(arguments: list[str], tmp_path: Path) -> None:
    paths = ["--runs", str(tmp_path), "--out", str(tmp_path / "results"), "--markdown", str(tmp_path / "pages")]
    done = CliRunner().invoke(app, [*arguments, "prediction", *paths, "--no-measure"], catch_exceptions=False)
    assert "Qwen3-8B on codes" in done.stdout and "(paper 0.824)" in done.stdout
    assert "majority" not in done.stdout, "neither measured nor published"
    page = (tmp_path / "pages" / "prediction.md").read_text()
    assert page.startswith("# Prediction\n") and "| Diabetes130 | Qwen3-8B on codes | – | – | 35.0 |" in page
    command = "python -m tefm_bench prediction --data diabetes130 --data cicids2017=flows.parquet --seeds 1 --quick"
    assert command in page


def test_the_patients_set_aside_are_scored_on_request_only() -> None:
    def tables(*names: str, quick: bool = False) -> tuple[str, ...]:
        return Request.of(names, [], [], seeds="3", quick=quick).tables

    assert "heldout" not in tables() and "tables" in tables()
    assert tables("heldout") == ("heldout",) and "heldout" in tables(quick=True)


def test_a_folder_holds_the_user_tables(tmp_path: Path) -> None:
    request = Request.of(["tables"], [str(tmp_path)], [], seeds="3", quick=False, only=["adult"])
    assert request.paths == {"tables": tmp_path} and request.setup.seeds == (10, 11, 12)
    assert request.command("tables") == "python -m tefm_bench tables --data FOLDER --only adult --seeds 3"
    needed = TABLES["tables"].needs(request.setup)
    runs = [measurement for measurement in needed if isinstance(measurement, TableRun)]
    assert {(run.table, run.seed, run.most) for run in runs} == {("adult", seed, 12_000) for seed in (10, 11, 12)}
    assert len(runs) == 3 * 6, "two fits and four tabular models of each split"
    request = Request.of(["questions"], [str(tmp_path)], ["smollm2-135m", "models/other"], seeds="3", quick=False)
    command = "python -m tefm_bench questions --data FOLDER --seeds 3 --backbone smollm2-135m --backbone models/other"
    assert request.command("questions") == command


@pytest.mark.parametrize(("kind", "models"), [("table-beside", {None}), ("logistic", {"logistic"})])
def test_only_some_kinds_are_measured(
    kind: str, models: set[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Measurement] = []
    monkeypatch.setattr(Bench, "measure", lambda _, measurement: made.append(measurement))
    paths = ["--runs", str(tmp_path), "--out", str(tmp_path / "results")]
    done = CliRunner().invoke(app, ["tables", "--only", "adult", "--kind", kind, "--quick", *paths])
    assert done.exit_code == 0 and not (tmp_path / "results").exists()
    assert len(made) == (6 if models == {None} else 3) and {getattr(one, "model", None) for one in made} == models


def test_a_kind_that_a_table_does_not_need_is_refused(tmp_path: Path, explained: Any) -> None:
    request = Request.of(["tables"], [], [], seeds="1", quick=True)
    call = lambda: run(request, tmp_path, tmp_path, kinds=["table-besides"])  # noqa: E731
    explained(SettingsError, call, "no such measurements", "did you mean 'table-beside'")


def test_tables_share_measurements() -> None:
    setup = Setup()
    needed = {name: {measurement.key for measurement in TABLES[name].needs(setup)} for name in TABLES}
    assert needed["hierarchy"] < needed["reconstruction"]
    default = {setup.prediction(setup.codes("diabetes130-open", split, "task-aware")).key for split in setup.splits}
    assert len(default) == 3 and default <= needed["prediction"] & needed["shapes"]
    after_alignment = {aligned(setup, "diabetes130-open", split, "task-aware", "default").key for split in setup.splits}
    assert len(after_alignment) == 3
    assert after_alignment <= needed["alignment"] & needed["pretraining"]


@pytest.mark.parametrize(
    ("tables", "data", "seeds", "kind", "parts"),
    [
        (["predictions"], [], "3", SettingsError, ["no such table", "'predictions'", "did you mean 'prediction'"]),
        ([], ["diabetes"], "3", SettingsError, ["no such data set", "'diabetes'", "did you mean 'diabetes130'"]),
        ([], ["mimic3=/no/such/folder"], "3", InputError, ["/no/such/folder", "--data mimic3=PATH"]),
        ([], [], "0", SettingsError, ["'0'", "--seeds 3"]),
        ([], [], "three", SettingsError, ["'three'", "--seeds 3"]),
        ([], [], "25-20", SettingsError, ["lower than the first", "'25-20'", "--seeds 20-25"]),
    ],
)
def test_requests_that_are_refused(
    tables: list[str], data: list[str], seeds: str, kind: type[TefmError], parts: list[str], explained: Any
) -> None:
    explained(kind, lambda: Request.of(tables, data, [], seeds=seeds, quick=True), *parts)


def test_a_user_table_that_is_not_there_is_refused(explained: Any) -> None:
    call = lambda: Request.of([], [], [], seeds="3", quick=True, only=["unsw"])  # noqa: E731
    explained(SettingsError, call, "no such user table", "did you mean 'unsw_nb15'")


@pytest.mark.parametrize(
    ("tables", "files"),
    [
        (["tokens", "hierarchy"], ["ddos_10_B5.npz", "diabetes130-open_10_B10.npz"]),
        (["prediction"], ["diabetes130-open_10.texts.json.gz", "diabetes130-open_10_B10.npz"]),
    ],
)
def test_prepare_only_writes_the_arrays(
    tables: list[str], files: list[str], arguments: list[str], tmp_path: Path
) -> None:
    paths = ["--runs", str(tmp_path), "--out", str(tmp_path / "results")]
    done = CliRunner().invoke(app, [*arguments, *tables, *paths, "--prepare"], catch_exceptions=False)
    assert done.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "quick" / "data").iterdir()) == files
    assert not (tmp_path / "quick" / "measurements").exists() and not (tmp_path / "results").exists()
