"""The documentation holds: links lead somewhere, code runs, commands and settings exist.

A Python block behind the comment `<!-- run -->` is run, in a folder with small tables; the others compile.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml
from conftest import MASKS, QUICK, stays
from markdown.extensions.toc import slugify

import tefm.datasets
from tefm.base.settings import Settings
from tefm.cli import app
from tefm.codes.config import TokenizerConfig
from tefm.datasets import Dataset, diabetes130
from tefm.language.config import AlignConfig, TrainConfig, TuneConfig
from tefm.language.prompts import Prompt
from tefm.model.explainer import Choice
from tefm.model.task import Split, Task
from tefm.pipeline.config import ModelConfig
from tefm.questions.config import QuestionsConfig, QuestionSettings
from tefm.rationale.config import LookAlikeConfig, RationaleConfig, SurrogateConfig
from tefm.serve.limits import ServeSettings
from tefm.tables.schema import Field, Schema

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

FENCE = re.compile(r"^(?P<run><!-- run -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)|(?:src|href)=\"(?P<html>[^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z]+:")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    body: str
    run: bool


def blocks(text: str) -> Iterator[Block]:
    for fence in FENCE.finditer(text):
        yield Block(fence["language"], fence["body"], bool(fence["run"]))


def prose(text: str) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """What can stand behind # in a link to a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = [title.replace("`", "") for title in re.findall(r"^#+ +(.+?) *#*$", text, re.MULTILINE)]
    return {slugify(title, "-") for title in titles} | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def broken_links(page: Path) -> list[str]:
    """The links and images of a page that lead nowhere."""
    broken = []
    for link in LINK.finditer(prose(page.read_text(encoding="utf-8"))):
        target = link["target"] or link["html"]
        if ELSEWHERE.match(target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and (file.suffix != ".md" or anchor not in anchors(file))):
            broken.append(target)
    return broken


def commands(text: str) -> list[str]:
    """The lines of a page's blocks that call `tefm`, without their comments; a line that ends in \\ goes on."""
    lines = [
        line.removeprefix("$ ").strip()
        for block in blocks(text)
        if block.language in ("", "sh", "bash", "console")
        for line in block.body.replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if line.startswith("tefm ")]


def parse(line: str) -> None:
    """Read a command line as the real command would, and do nothing."""
    group: Any = typer.main.get_command(app)
    arguments = shlex.split(line, comments=True)[1:]
    with group.make_context("tefm", ["--version"]) as context:
        name, command, rest = group.resolve_command(context, arguments)
        command.make_context(name, rest, parent=context)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# ---- links ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title with `code`\n\n```\n# no title\n```\n")
    (tmp_path / "page.md").write_text(
        "## Here\n[a](other.md) [b](other.md#a-title-with-code) [c](#here) [d](https://example.org/) `[e](none.md)`\n"
        "[f](none.md) ![g](none.png) [h](other.md#no-title) [i](#there) [![j](lost.png)](other.md)\n"
        '<img src="gone.png">\n```\n[k](none.md)\n```\n'
    )
    assert set(broken_links(tmp_path / "page.md")) == {
        "none.md", "none.png", "other.md#no-title", "#there", "lost.png", "gone.png",
    }  # fmt: skip


# ---- commands -------------------------------------------------------------------------------------------------------

LINES = [
    pytest.param(line, id=f"{named(page)}: {line}") for page in PAGES for line in commands(page.read_text("utf-8"))
]


@pytest.mark.parametrize("line", LINES)
def test_commands_exist(line: str) -> None:
    parse(line)


def test_there_are_commands() -> None:
    assert len(LINES) > 20


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("tefm fitt task.yaml --out model", "No such command"),
        ("tefm fit task.yaml --outt model", "No such option"),
        ("tefm fit task.yaml", "Missing parameter"),
        ("tefm extend model task.yaml other.yaml", "unexpected extra argument"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        parse(line)


def test_commands_are_found_in_blocks() -> None:
    page = "`tefm no`\n```\n$ tefm fit a \\\n  --out b   # why\nmake demo\n```\n```python\ntefm = 1\n```\n"
    assert commands(page) == ["tefm fit a    --out b   # why"]


# ---- YAML -----------------------------------------------------------------------------------------------------------

YAML = [
    pytest.param(block.body, id=f"{named(page)} {number}")
    for page in PAGES
    for number, block in enumerate(blocks(page.read_text("utf-8")))
    if block.language == "yaml"
]


@pytest.mark.parametrize("text", YAML)
def test_yaml_is_a_task_or_a_schema(text: str) -> None:
    body = yaml.safe_load(text)
    if "table" in body:
        task = Task.from_yaml(text)
        task.model.prompt_for(("no", "yes"), 1, Schema.from_yaml("{label: died, fields: {age: number}}"))
    else:
        Schema.from_yaml(text)


def test_every_setting_has_its_line() -> None:
    page = (ROOT / "docs" / "your-table.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("|"))
    own = {"schema" if name == "given_schema" else name for name in Task.model_fields} - {"model"}
    for name in {*own, *ModelConfig.model_fields, *Field.model_fields} - {"name"}:
        assert f"`{name}`" in rows, name
    assert all(f"{name}:" in page for name in Split.model_fields)


#: Settings that nobody writes: they come from the schema, or a list stands for them.
NOT_WRITTEN = {"text_budgets", "asked"}

#: The settings of a model's stages.
STAGES: list[type[Settings]] = [
    TokenizerConfig, AlignConfig, TuneConfig, Prompt, QuestionsConfig, QuestionSettings, LookAlikeConfig,
    RationaleConfig,
]  # fmt: skip
#: All classes with settings of the product; a task's data, schema and split are no settings, they say what there is.
SETTINGS: list[type[Settings]] = [*STAGES, TrainConfig, SurrogateConfig, ModelConfig, Choice, ServeSettings]


@pytest.mark.parametrize("config", STAGES)
def test_every_setting_of_a_stage_is_on_a_page(config: type[Settings]) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    named = {*re.findall(r"`([a-z_]+)(?:: [^`]*)?`", pages), *re.findall(r"[{ ,(]([a-z_]+): ", pages)}
    assert set(config.model_fields) - named - NOT_WRITTEN == set()


def own_settings(config: type[Settings]) -> list[str]:
    """The settings that a class names itself, those of its base among them where it gives them another default."""
    return [name for name in config.model_fields if name in config.__annotations__ and name not in NOT_WRITTEN]


def test_there_are_at_most_90_settings() -> None:
    """Each one is a question to the user. What nobody should turn is a constant, or follows from another setting."""
    assert sum(len(own_settings(config)) for config in SETTINGS) <= 90


# ---- Python ---------------------------------------------------------------------------------------------------------

PYTHON = {page: [block for block in blocks(page.read_text("utf-8")) if block.language == "python"] for page in PAGES}


@pytest.mark.parametrize("page", [page for page in PAGES if PYTHON[page]], ids=named)
def test_python_compiles(page: Path) -> None:
    for block in PYTHON[page]:
        compile(block.body, named(page), "exec")


def part_of(data: Dataset, *named: str) -> Dataset:
    """A tenth of the embedded patients, and some by name."""
    ids = data.sequences.ids
    return replace(data, sequences=data.sequences.select((np.arange(len(ids)) % 10 == 0) | np.isin(ids, named)))


RUN = [page for page in PAGES if any(block.run for block in PYTHON[page])]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page.name == "README.md" else pytest.mark.all, id=named(page)) for page in RUN],
)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backbones: dict[str, Path]) -> None:
    from tefm.model.estimator import TEFM

    runs = [block for block in PYTHON[page] if block.run]
    small = {**QUICK, **(MASKS if any("explain_masked" in block.body for block in runs) else {})}

    class Quick(TEFM):
        """The model of the page, with a miniature for a backbone and the settings of a short fit."""

        def __init__(self, schema: Schema | None = None, **settings: Any) -> None:
            short = {name: {**settings.get(name, {}), **of} for name, of in small.items()}
            super().__init__(schema, device="cpu", **{"backbone": str(backbones["llama"]), **settings, **short})

    monkeypatch.setattr(tefm, "TEFM", Quick, raising=False)
    monkeypatch.setattr(tefm.datasets, "diabetes130", lambda: part_of(diabetes130(), "16508790"))
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("admissions", "new_admissions", "labelled_later")):
        table = stays(120 if seed == 0 else 20, seed=seed).rename({"patient": "patient_id", "day": "admitted"})
        table.write_csv(f"{name}.csv")
    names: dict[str, Any] = {}
    for block in runs:
        exec(compile(block.body, named(page), "exec"), names)


def test_some_python_runs() -> None:
    assert {named(page) for page in RUN} >= {"README.md"}


# ---- the front page -------------------------------------------------------------------------------------------------


def test_the_readme_is_short_and_begins_with_what_to_type() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = page.splitlines()
    assert len(lines) <= 150
    assert "```python" in lines[:60] and any(line.startswith("pip install") for line in lines[:60])
    assert re.findall(r"<!--.*?-->", page, re.DOTALL) == ["<!-- run -->"]


def test_the_first_page_of_the_site_says_what_the_readme_says() -> None:
    readme, index = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/index.md"))
    for words in ("`tefm` turns", "**Use it when**", "**Use LightGBM when**"):
        sentence = re.search(rf"{re.escape(words)}[^.]*\.", readme)
        assert sentence is not None and sentence.group() in index


# ---- the site -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    assert (tmp_path / "concepts" / "index.html").is_file()


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in [*(ROOT / "docs").rglob("*.md"), *NOTEBOOKS]:
        assert str(page.relative_to(ROOT / "docs")) in navigation


# ---- notebooks ------------------------------------------------------------------------------------------------------

NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_a_notebook_was_run_from_top_to_bottom(notebook: Path) -> None:
    code = cells(notebook, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs), "no warnings, which name places of a machine"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_links_of_a_notebook_lead_somewhere(notebook: Path, tmp_path: Path) -> None:
    text = "\n".join("".join(cell["source"]) for cell in cells(notebook, "markdown"))
    targets = [link["target"] for link in LINK.finditer(text)]
    assert targets
    for target in targets:
        assert (notebook.parent / target).is_file(), target


@pytest.mark.all
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_a_notebook_runs_again(notebook: Path) -> None:
    """With the figures that it shows, as far as they are the same on every processor."""
    import nbclient
    import nbformat

    stored = nbformat.read(notebook, as_version=4)
    again = nbclient.NotebookClient(nbformat.from_dict(stored), timeout=1_800).execute()
    assert len(again.cells) == len(stored.cells)
