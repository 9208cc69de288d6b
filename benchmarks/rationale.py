"""How faithful rationales are: the tables of docs/rationale.md.

    python benchmarks/rationale.py judges [--share 0/4]     # the language models that answer, per data set and split
    python benchmarks/rationale.py run [--share 0/4]        # learn to explain, rank in every way, judge; CPU or GPU
    python benchmarks/rationale.py cost                     # milliseconds per sequence of every way, on the CPU
    python benchmarks/rationale.py report                   # benchmarks/results/rationale.json, docs/rationale.md

Stands on the arrays of `python benchmarks/language.py prepare` and its `coders`. Everything skips what is done.
Settings were chosen on the validation part of split 3; the tables show the test parts of splits 10 to 12.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import language as stage3
import numpy as np

RUNS = Path("runs/rationale")
RESULTS = Path("benchmarks/results/rationale.json")
DATA = ("diabetes130", "ddos", "portscan")
TASK = {"diabetes130": "mortality", "ddos": "ddos", "portscan": "portscan"}
OF_ALL, OF_PRESENT = (0.25, 0.20, 0.15, 0.10, 0.05), (0.30, 0.20, 0.10, 0.05)
#: Test sequences on which the ways that ask the language model itself are compared.
SAMPLE = 60
#: What the extractor is learned with: our settings, the paper's, and ours with one part taken out.
VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {},
    "dual fidelity (the paper's)": {"preset": "paper"},
    "prediction fidelity only (the paper's)": {"preset": "paper", "code_weight": 0.0},
}
PARTS: dict[str, dict[str, Any]] = {
    "surrogate learns labels, not probabilities": {"targets": "labels"},
    "surrogate sees whole records only": {"versions": 0, "rounds": 0},
    "straight-through top-k instead of the search": {"selection": "topk"},
    "soft mask instead of the search": {"selection": "soft", "code_weight": 1.0, "sparsity": 0.1},
    "search for the same code as well (dual)": {"code_weight": 0.05},
}


#: Who was never shown a record of which only a part was kept.
UNSEEN = {"the encoder saw whole records only": "encoder", "the language model saw whole records only": "reader"}


def jobs() -> list[dict[str, Any]]:
    """Every figure of the tables, the most wanted first."""
    found = [{"data": "diabetes130", "seed": seed, "what": "table"} for seed in stage3.REPORTED]
    for name in VARIANTS:
        found += [{"data": "diabetes130", "seed": s, "what": name} for s in stage3.REPORTED if name != "ours"]
    found += [{"data": "diabetes130", "seed": s, "what": what} for what in UNSEEN for s in stage3.REPORTED]
    found += [{"data": "diabetes130", "seed": s, "what": name} for name in PARTS for s in stage3.REPORTED]
    for data in DATA[1:]:
        found.append({"data": data, "seed": stage3.REPORTED[0], "what": "table"})
    return found


# ---- the judge --------------------------------------------------------------------------------------------------


def kind_of(job: dict[str, Any]) -> str:
    return UNSEEN.get(job["what"], "usual")


def judges(wanted: list[dict[str, Any]]) -> None:
    """A tuned language model for each data set and split, and for what it or the encoder has not seen."""
    for data, seed, kind in dict.fromkeys((job["data"], job["seed"], kind_of(job)) for job in wanted):
        folder = RUNS / "judges" / f"{data}_{seed}_{kind}"
        if not (folder / "facts.json").exists():
            make_judge(data, seed, kind, folder)


def coder_of(data: str, seed: int, kind: str, body: Any) -> Any:
    """The task-aware tokenizer of the language benchmark, or one whose encoder saw whole records only."""
    job = {"data": data, "seed": seed, "codes": "task-aware"}
    if kind == "encoder":
        job["codes"] = "unmasked"
        target = stage3.RUNS / "coders" / f"{stage3.key(job)}.npz"
        if not target.exists():
            stage3.fit_coder(job, target)
    return stage3.open_coder(job, body)[1]


def make_judge(data: str, seed: int, kind: str, folder: Path) -> None:
    from tefm.language.backbone import open_backbone
    from tefm.language.calibrate import Calibration
    from tefm.language.config import TuneConfig
    from tefm.language.reader import CodeSequences, Reader
    from tefm.language.vocabulary import CodeVocabulary
    from tefm.rationale.masking import with_masked_copies

    arrays, body = stage3.load(data, seed)
    coder = coder_of(data, seed, kind, body)
    parts = sequences_of(data, arrays)
    backbone = open_backbone(stage3.BACKBONE, layers=6, seed=seed)
    config = coder.config
    reader = Reader.open(
        backbone,
        CodeVocabulary.of(body["phrases"]["record"], levels=config.levels, entries=config.entries),
        coder.network.quantiser.codebooks_KCd.detach().cpu().numpy(),
        seed=seed,
    )
    shown = {name: CodeSequences(coder.encode(part.x_ND), part.starts) for name, (part, _) in parts.items()}
    copies = 0 if kind == "reader" else 1
    shown["train"] = with_masked_copies(parts["train"][0], coder.encode, copies, seed)
    classes = body["tasks"][TASK[data]]["classes"]
    settings = {"epochs": (3 if data == "diabetes130" else 6) / (1 + copies)}  # as many steps as without copies
    reader.tune(
        stage3.question(TASK[data], "compact", classes), classes, shown["train"],
        np.tile(parts["train"][1], 1 + copies), shown["validation"], parts["validation"][1],
        TuneConfig(seed=seed, **settings),
    )  # fmt: skip
    calibration = Calibration.fit(reader.logits(shown["validation"]), parts["validation"][1], positive=0)
    folder.mkdir(parents=True, exist_ok=True)
    backbone.model.save_pretrained(folder)
    backbone.tokenizer.save_pretrained(folder)
    (folder / "facts.json").write_text(json.dumps({"ids": asdict(reader.ids), "calibration": calibration.to_dict()}))
    print("RESULT judge", data, seed, kind, flush=True)


def sequences_of(data: str, arrays: Any) -> dict[str, tuple[Any, Any]]:
    """Train, validation and test: sequences of slots, and their labels."""
    from tefm.rationale.judge import SlotSequences

    task = TASK[data]
    whole = SlotSequences(arrays["x"][arrays[f"{task}/rows"]], arrays[f"{task}/starts"])
    labels, part = arrays[f"{task}/label"].astype(np.int64), arrays[f"{task}/part"]
    chosen = {name: np.flatnonzero(part == number) for number, name in enumerate(stage3.PARTS)}
    return {name: (whole.select(at), labels[at]) for name, at in chosen.items()}


def open_judge(data: str, seed: int, kind: str) -> tuple[Any, Any, dict[str, tuple[Any, Any]]]:
    """The judge, its tokenizer, and the parts."""
    from tefm.language.backbone import open_backbone
    from tefm.language.calibrate import Calibration
    from tefm.language.prompts import PromptWriter
    from tefm.language.reader import Reader
    from tefm.language.vocabulary import TokenIds
    from tefm.rationale.judge import Judge

    arrays, body = stage3.load(data, seed)
    coder = coder_of(data, seed, kind, body)
    folder = RUNS / "judges" / f"{data}_{seed}_{kind}"
    facts = json.loads((folder / "facts.json").read_text())
    backbone = open_backbone(folder)
    classes = body["tasks"][TASK[data]]["classes"]
    reader = Reader(backbone, TokenIds(**facts["ids"]))
    prompt = stage3.question(TASK[data], "compact", classes)
    reader.writer_ = PromptWriter(backbone.tokenizer, prompt, classes, reader.ids)
    judge = Judge(coder.encode, reader.logits, Calibration.from_dict(facts["calibration"]))
    return judge, coder, sequences_of(data, arrays)


# ---- run --------------------------------------------------------------------------------------------------------


def run(wanted: list[dict[str, Any]], limit: float) -> None:
    started = time.perf_counter()
    for job in wanted:
        target = RUNS / "done" / f"{stage3.digest(job)}.json"
        if target.exists() or time.perf_counter() - started > limit:
            continue
        judges([job])
        judge, coder, parts = open_judge(job["data"], job["seed"], kind_of(job))
        body = {"job": job, **examined(job, judge, coder, parts)}
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(body))
        print("RESULT", job, f"{time.perf_counter() - started:.0f} s", flush=True)


def explainer_of(job: dict[str, Any], judge: Any, coder: Any, training: Any) -> Any:
    from tefm.rationale.config import RationaleConfig
    from tefm.rationale.extractor import Explainer

    settings = {**VARIANTS, **PARTS}.get(job["what"], {})
    changes = {name: value for name, value in settings.items() if name != "preset"}
    config = RationaleConfig.preset(settings.get("preset", "default"), seed=job["seed"], **changes)
    return Explainer.fit(coder, training, judge, config)


def examined(job: dict[str, Any], judge: Any, coder: Any, parts: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Learn to explain, then judge every ranking on the test sequences."""
    training, _ = parts["train"]
    test, labels = parts["test"]
    started = time.perf_counter()
    explainer = explainer_of(job, judge, coder, training)
    seconds = time.perf_counter() - started
    name = "ours" if job["what"] == "table" else job["what"]
    p_SQ = judge(test)
    rankings = {name: explainer.rank(test, p_SQ)}
    found: dict[str, Any] = {"seconds": seconds, "agreement": asdict(explainer.agreement_)}
    if job["what"] == "table":
        labels_S = judge.decide(p_SQ)
        rankings |= {
            other: rank(test) for other, rank in alternatives(explainer, judge, coder, parts, labels_S, job).items()
        }
        few = job["data"] in stage3.FLOWS  # ten records each: every question is a long one
        found["growth"] = growth(judge, test, {"ours": rankings["ours"]} if few else rankings)
        found["smuggled"] = shuffled(judge, test, labels, rankings["ours"])
        found["sample"] = [] if few else sampled(judge, test, labels, rankings, job)
    found["rows"] = judged(judge, test, labels, rankings)
    return found


def alternatives(
    explainer: Any, judge: Any, coder: Any, parts: Any, labels_S: Any, job: dict[str, Any]
) -> dict[str, Callable[[Any], Any]]:
    """Every other ranking; what is learned is learned from the training sequences and the judge's answers to them."""
    from tefm.rationale import alternatives as other
    from tefm.rationale.alternatives_models import fit_attention, fit_plain

    training, labels = parts["train"]
    p_SQ = judge(training)
    said_S = judge.decide(p_SQ)

    explainable = explainer.log_p
    layout, seed = explainer.network.layout, job["seed"]
    samples = 128 if job["data"] in stage3.FLOWS else 512  # ten records each
    plain, pool = fit_plain(training, p_SQ, layout, seed=seed), fit_attention(training, p_SQ, layout, seed=seed)
    return {
        "random": lambda some: other.by_chance(some, seed),
        "mutual information": lambda some: other.by_mutual_information(training, said_S, some),
        "gradient saliency": lambda some: other.by_saliency(explainable, some, labels_S=labels_S[: len(some)]),
        "integrated gradients": lambda some: other.by_integrated_gradients(
            explainable, some, labels_S=labels_S[: len(some)]
        ),
        "attention": lambda some: other.by_attention(pool, some),
        "LRP": lambda some: other.by_lrp(plain, some, labels_S=labels_S[: len(some)]),
        "SHAP": lambda some: other.by_shap(explainable, some, samples, labels_S=labels_S[: len(some)], seed=seed),
        "LightGBM + TreeSHAP": lambda some: other.by_tree_shap(
            training, labels, some, layout, labels_S=labels_S[: len(some)], seed=seed
        ),
    }


def judged(judge: Any, test: Any, labels: Any, rankings: dict[str, Any]) -> list[dict[str, Any]]:
    """Every ranking at every retention, with each single prediction."""
    from tefm.rationale.verify import faithfulness

    rows = []
    retentions: dict[Any, tuple[float, ...]] = {"all": OF_ALL, "present": OF_PRESENT}
    if (test.x_ND > 0).all():  # a flow has every slot: both shares are the same
        del retentions["all"]
    for of, shares in retentions.items():
        for row in faithfulness(judge, test, labels, rankings, shares, of=of, proof=True):
            rows.append({**row.to_dict(), "predicted": row.predicted_S.tolist(), "labels": labels.tolist()})
    return rows


def growth(judge: Any, test: Any, rankings: dict[str, Any]) -> dict[str, Any]:
    """The smallest rationale that passes, by every ranking: how many slots of a sequence it takes."""
    from tefm.rationale.verify import until_sufficient, verify

    found = {}
    for name, scores_ND in rankings.items():
        keep_ND = until_sufficient(judge, scores_ND, test, prune=False)  # what the order alone brings
        checked = verify(judge, test, keep_ND)
        size_S = np.bincount(test.sequence_N, keep_ND.sum(axis=1), minlength=len(test))
        passed_S = np.array([one.passed for one in checked])
        found[name] = {
            "passed": float(passed_S.mean()),
            "default": float(np.mean([one.verdict == "default" for one in checked])),
            "slots": [float(np.median(size_S[passed_S])), float(size_S[passed_S].mean())],
            "comprehensiveness": float(np.mean([one.comprehensiveness for one in checked if one.passed])),
            "flips": float(np.mean([one.label_without != one.label for one in checked if one.passed])),
        }
    return found


def shuffled(judge: Any, test: Any, labels: Any, scores_ND: Any) -> dict[str, float]:
    """Accuracy under our masks, and under the same masks on the records of others."""
    from tefm.rationale.selection import top_k
    from tefm.rationale.verify import smuggled

    keep_ND = top_k(scores_ND, test, 0.05, of="present")
    kept = judge.decide(judge(test, keep_ND))
    return {
        "accuracy": float((kept == labels).mean()),
        "shuffled": float((smuggled(judge, test, keep_ND) == labels).mean()),
        "commonest": float(np.bincount(labels).max() / len(labels)),
    }


def sampled(judge: Any, test: Any, labels: Any, rankings: dict[str, Any], job: dict[str, Any]) -> list[dict[str, Any]]:
    """Ways that ask the language model for every subset, on some test sequences, beside the others on the same."""
    from tefm.rationale.alternatives import by_greedy, by_kernel_shap
    from tefm.rationale.verify import faithfulness

    some = np.sort(np.random.default_rng(job["seed"]).permutation(len(test))[:SAMPLE])
    few, rows = test.select(some), test.records(some)
    ranked = {name: scores_ND[rows] for name, scores_ND in rankings.items()}
    ranked["KernelSHAP on the language model"] = by_kernel_shap(judge, few, 512, seed=job["seed"])
    ranked["greedy search with the language model"] = by_greedy(judge, few, 6, over="record")
    found = faithfulness(judge, few, labels[some], ranked, (0.20, 0.10, 0.05), of="present")
    return [row.to_dict() for row in found]


# ---- cost -------------------------------------------------------------------------------------------------------


def cost(sequences: int = 50, asked: int = 3) -> None:
    """Milliseconds per sequence to rank the slots, every way in one run on the CPU; learning is not counted.

    The ways that ask the language model are timed on `asked` sequences.
    """
    from tefm.rationale.alternatives import by_greedy, by_kernel_shap

    job = {**jobs()[0], "seed": stage3.EXPLORED}
    judges([job])
    judge, coder, parts = open_judge(job["data"], job["seed"], "usual")
    training, labels = parts["train"]
    few = np.arange(400)
    parts["train"] = (training.select(few), labels[few])
    explainer = explainer_of({**job, "what": "ours"}, judge, coder, parts["train"][0])
    test = parts["test"][0].select(np.arange(sequences))
    labels_S = judge.decide(judge(test))
    ways: dict[str, tuple[Callable[[Any], Any], int]] = {
        name: (rank, sequences) for name, rank in alternatives(explainer, judge, coder, parts, labels_S, job).items()
    }
    ways = {"ours": (explainer.rank, sequences), **ways}
    ways["KernelSHAP on the language model"] = (lambda some: by_kernel_shap(judge, some, 512), asked)
    ways["greedy search with the language model"] = (lambda some: by_greedy(judge, some, 6, over="record"), asked)
    found = {}
    for name, (rank, count) in ways.items():
        some = test.select(np.arange(count))
        rank(some.select(np.arange(1)))
        started, rounds = time.perf_counter(), 0
        while rounds == 0 or time.perf_counter() - started < 1.0:
            rank(some)
            rounds += 1
        found[name] = 1_000 * (time.perf_counter() - started) / rounds / count
        print("RESULT cost", name, f"{found[name]:.3f} ms", flush=True)
    (RUNS / "cost.json").write_text(json.dumps(found))


# ---- report -----------------------------------------------------------------------------------------------------

#: What the paper's table has for MIMIC-III at the same shares of all slots (accuracy).
PUBLISHED = {
    "random": (0.6526, 0.6496, 0.6389, 0.6036, 0.5494),
    "mutual information": (0.7025, 0.6862, 0.6518, 0.6561, 0.6380),
    "gradient saliency": (0.6715, 0.6707, 0.6724, 0.6727, 0.6655),
    "attention": (0.6793, 0.6655, 0.6612, 0.6638, 0.6610),
    "LRP": (0.7962, 0.7661, 0.7489, 0.7214, 0.6973),
    "SHAP": (0.8126, 0.8043, 0.7865, 0.7429, 0.7051),
    "prediction fidelity only (the paper's)": (0.7360, 0.7291, 0.7257, 0.7231, 0.7177),
    "dual fidelity (the paper's)": (0.8126, 0.8040, 0.7893, 0.7704, 0.7472),
}


def report() -> None:
    """Put the splits together, and write the tables."""
    results = [json.loads(path.read_text()) for path in sorted((RUNS / "done").glob("*.json"))]
    body = {
        "rows": [{**result["job"], **row} for result in results for row in result["rows"]],
        "tables": [{k: v for k, v in result.items() if k != "rows"} for result in results],
        "cost": json.loads((RUNS / "cost.json").read_text()),
    }
    kept = {**body, "rows": [{k: v for k, v in r.items() if k not in ("predicted", "labels")} for r in body["rows"]]}
    kept["gains"] = [
        {"data": data, "of": of, **gain}
        for data in known(body["rows"])
        for of, shares in (("all", OF_ALL), ("present", OF_PRESENT))
        for share in shares
        for gain in gains(body["rows"], data, of, share)
    ]
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    Path("docs/rationale.md").write_text(page(body, kept["gains"]), encoding="utf-8")


def known(rows: list[dict[str, Any]]) -> list[str]:
    """The data sets that have been run."""
    return [data for data in DATA if any(row["data"] == data for row in rows)]


def of_table(rows: list[dict[str, Any]], data: str, of: str, share: float, strategy: str) -> list[dict[str, Any]]:
    """The rows of a cell of the table, one per split; those of a part that was taken out are their own."""
    found = [r for r in rows if (r["data"], r["of"], r["retention"], r["strategy"]) == (data, of, share, strategy)]
    if strategy in ("everything", "nothing"):
        found = [row for row in found if row["what"] == "table"]
    return sorted(found, key=lambda row: row["seed"])


def gains(rows: list[dict[str, Any]], data: str, of: str, share: float) -> list[dict[str, Any]]:
    """Ours minus every other way, on the test sequences of all splits: paired bootstrap."""
    from tefm.rationale.verify import paired_gain

    ours = of_table(rows, data, of, share, "ours")
    if not ours:
        return []
    full = of_table(rows, data, of, 1.0, "everything")
    found = []
    for strategy in strategies(rows, data):
        other = of_table(rows, data, of, share, strategy)
        if strategy == "ours" or len(other) != len(ours):
            continue
        row: dict[str, Any] = {"retention": share, "strategy": strategy}
        for figure, truth in (("accuracy", "labels"), ("agreement", "predicted")):
            right = [
                row["labels"] if truth == "labels" else row["predicted"]
                for row in (ours if truth == "labels" else full)
            ]
            mine, others = (
                np.concatenate([np.array(r["predicted"]) == np.array(t) for r, t in zip(of_them, right, strict=True)])
                for of_them in (ours, other)
            )
            row[figure] = vars(paired_gain(mine, others))
        found.append(row)
    return found


def strategies(rows: list[dict[str, Any]], data: str) -> list[str]:
    """Ours first, then the paper's, then the others."""
    known = dict.fromkeys(row["strategy"] for row in rows if row["data"] == data)
    first = [name for name in VARIANTS if name in known]
    return first + [n for n in known if n not in (*VARIANTS, *PARTS, *UNSEEN, "everything", "nothing")]


def grid(rows: list[dict[str, Any]], data: str, of: str, shares: tuple[float, ...], figure: str) -> list[str]:
    """One figure: a line per strategy, a column per retention."""
    head = "| | " + " | ".join(f"{share:.0%}" for share in shares) + " |"
    lines = [head, "| --- " * (1 + len(shares)) + "|"]
    for strategy in strategies(rows, data):
        cells = [stage3.spread([row[figure] for row in of_table(rows, data, of, share, strategy)]) for share in shares]
        lines.append(f"| {'**ours**' if strategy == 'ours' else strategy} | " + " | ".join(cells) + " |")
    return lines


def page(body: dict[str, Any], won: list[dict[str, Any]]) -> str:
    """docs/rationale.md."""
    rows, tables = body["rows"], body["tables"]
    parts = [INTRODUCTION]
    for data in known(rows):
        parts.append(f"\n## {TITLES[data]}\n")
        for name in ("everything", "nothing"):
            ends = of_table(rows, data, "present", 1.0 if name == "everything" else 0.0, name)
            figures = ", ".join(
                f"{said} {stage3.spread([row[figure] for row in ends])}"
                for said, figure in (("accuracy", "accuracy"), ("macro F1", "macro_f1"))
            )
            parts.append(f"- {'all slots' if name == 'everything' else 'no slot'} kept: {figures}")
        for of, shares in (("all", OF_ALL), ("present", OF_PRESENT)):
            slots = of_table(rows, data, of, shares[-1], "ours")
            if not slots:
                continue
            kept = stage3.spread([row["kept"] for row in slots], 1)
            for figure, said in (("accuracy", "Accuracy"), ("agreement", "Agreement with the full prediction")):
                parts.append(f"\n{said}, by share of {of} slots ({shares[-1]:.0%}: {kept} slots of a record):\n")
                parts += grid(rows, data, of, shares, figure)
                parts.append("\n" + lost(won, data, of, figure))
        parts += growth_table(tables, data)
    parts += ["\n## What each part brings (Diabetes130, accuracy / agreement)\n"]
    parts += part_table(rows, tables)
    parts += ["\n## Asking the language model itself (Diabetes130, a sample of test sequences, agreement)\n"]
    parts += sample_table(tables)
    smuggled = [t["smuggled"] for t in tables if t["job"] == {**t["job"], "data": "diabetes130", "what": "table"}]
    mean = {name: stage3.spread([one[name] for one in smuggled]) for name in smuggled[0]}
    parts.append(
        f"\n## Do the masks smuggle the answer?\n\nOur masks at 5% of the present slots: accuracy {mean['accuracy']}. "
        f"The same masks on the records of other patients: {mean['shuffled']}; the commonest class: "
        f"{mean['commonest']}."
    )
    parts.append(COST)
    parts.append("| | ms | times ours |")
    parts.append("| --- " * 3 + "|")
    ours = body["cost"]["ours"]
    parts += [f"| {name} | {ms:,.2f} | {ms / ours:,.0f} |" for name, ms in body["cost"].items()]
    parts += ["\n## The whole table (Diabetes130)\n", *long_table(rows)]
    return "\n".join(parts) + "\n"


def lost(won: list[dict[str, Any]], data: str, of: str, figure: str) -> str:
    """In words, where another way is ahead of ours, or behind, by more than the bootstrap interval."""
    here = [gain for gain in won if gain["data"] == data and gain["of"] == of]
    ahead = [g for g in here if g[figure]["high"] < 0]
    behind = [g for g in here if g[figure]["low"] > 0]
    said = (
        f"Paired bootstrap over the test sequences of all splits: ours is ahead in {len(behind)} of {len(here)} cells"
    )
    if not ahead:
        return said + ", behind in none."
    names = ", ".join(f"{g['strategy']} at {g['retention']:.0%} ({-g[figure]['value']:+.3f})" for g in ahead)
    return said + f", behind in {len(ahead)}: {names}."


def growth_table(tables: list[dict[str, Any]], data: str) -> list[str]:
    found = [t["growth"] for t in tables if t["job"]["data"] == data and t["job"]["what"] == "table"]
    lines = [
        "\nThe smallest rationale that passes, grown in ranked order:\n",
        "| | passed | default | slots, median | mean | comprehensiveness | answer changes without it |",
        "| --- " * 7 + "|",
    ]
    for name in found[0]:
        of = [one[name] for one in found]
        cells = [stage3.spread([one[figure] for one in of]) for figure in ("passed", "default")]
        cells += [stage3.spread([one["slots"][place] for one in of], 1) for place in (0, 1)]
        cells += [stage3.spread([one[figure] for one in of]) for figure in ("comprehensiveness", "flips")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def part_table(rows: list[dict[str, Any]], tables: list[dict[str, Any]]) -> list[str]:
    shown = [("present", 0.05), ("present", 0.10), ("present", 0.20), ("all", 0.05)]
    head = " | ".join(f"{share:.0%} of {of}" for of, share in shown)
    lines = [
        f"| | splits | all slots | {head} | surrogate says the same, whole / masked |",
        "| --- " * (4 + len(shown)) + "|",
    ]
    for name in ("ours", *PARTS, *UNSEEN, *list(VARIANTS)[1:]):
        what = "table" if name == "ours" else name
        mine = [row for row in rows if (row["data"], row["what"]) == ("diabetes130", what)]
        if not mine:
            continue
        full = [r["accuracy"] for r in mine if (r["strategy"], r["of"]) == ("everything", "all")]
        cells = [str(len(full)), stage3.spread(full)]
        for of, share in shown:
            here = [r for r in mine if (r["of"], r["retention"], r["strategy"]) == (of, share, name)]
            cells.append(" / ".join(stage3.spread([r[figure] for r in here]) for figure in ("accuracy", "agreement")))
        same = [t["agreement"] for t in tables if (t["job"]["data"], t["job"]["what"]) == ("diabetes130", what)]
        means = [np.mean([one[name] for one in same]) for name in ("whole_same", "masked_same")]
        cells.append(" / ".join("–" if np.isnan(mean) else f"{mean:.3f}" for mean in means))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def sample_table(tables: list[dict[str, Any]]) -> list[str]:
    found = [t["sample"] for t in tables if (t["job"]["data"], t["job"]["what"]) == ("diabetes130", "table")]
    names = list(dict.fromkeys(row["strategy"] for row in found[0] if 0 < row["retention"] < 1))
    lines = ["| | 20% of present | 10% | 5% |", "| --- " * 4 + "|"]
    for name in names:
        cells = [
            stage3.spread(
                [r["agreement"] for one in found for r in one if (r["strategy"], r["retention"]) == (name, s)]
            )
            for s in (0.20, 0.10, 0.05)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def long_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| | kept | accuracy | macro F1 | F1 (died) | F1 (survived) | agreement | passed | sufficiency "
        "| comprehensiveness | the paper's accuracy (MIMIC-III) |",
        "| --- " * 11 + "|",
    ]
    for of, shares in (("all", OF_ALL), ("present", OF_PRESENT)):
        for strategy in strategies(rows, "diabetes130"):
            for place, share in enumerate(shares):
                here = of_table(rows, "diabetes130", of, share, strategy)
                figures = [[row[name] for row in here] for name in ("accuracy", "macro_f1")]
                figures += [[row["f1"][number] for row in here] for number in (0, 1)]
                names = ("agreement", "passed", "sufficiency", "comprehensiveness")
                figures += [[row[name] for row in here] for name in names]
                published = f"{PUBLISHED[strategy][place]:.4f}" if of == "all" and strategy in PUBLISHED else ""
                cells = " | ".join(stage3.spread(values) for values in figures)
                lines.append(f"| {strategy} | {share:.0%} of {of} | {cells} | {published} |")
    return lines


COST = """
## Cost: milliseconds per sequence to rank its slots

Two Arm cores, one run, 50 test sequences of Diabetes130 (3 for those that ask the language model). Learning is not
counted, except for mutual information and TreeSHAP, which learn when they are asked; SHAP and KernelSHAP draw 512
subsets.
"""
TITLES = {
    "diabetes130": "Mortality on Diabetes130, test parts of three splits",
    "ddos": "DDoS flows, CIC-IDS2017 corrected sample, one split",
    "portscan": "PortScan flows, CIC-IDS2017 corrected sample, one split",
}
INTRODUCTION = """# How faithful the rationales are

Written by `python benchmarks/rationale.py report`; all figures are in `benchmarks/results/rationale.json`.

## How to read a verification

A rationale is a set of features (slots) of the records of one sequence. The language model is asked four times: about
all features, about the rationale alone, about everything but the rationale, and about empty records. What is left of a
record is coded again each time, and the model is the one that predicts, frozen.

- *sufficient* (passed): the rationale alone gets the same answer, and at least half of the evidence, which is by how
  much all features make the answer more probable than empty records do.
- *default*: empty records get the same answer with nearly the same probability (within 0.05). Nothing in the records
  argues for it, so no features can be shown to carry it; none are kept.
- *insufficient*: anything else.
- *sufficiency* is what the answer loses when only the rationale is kept (0 is best), *comprehensiveness* what it loses
  when the rationale is taken away. Both are differences of the probability of the predicted class.

What it does not say: that the rationale is the only one (where the rest of the record gives the same answer too, the
card says so), that no other few features of the record would speak for another answer, that the features cause the
outcome, or that the prediction is right.

## How it was measured

Each way to rank the slots of a record is judged alike: the same number of slots is kept, what is left is coded again,
and the frozen language model (SmolLM2-135M, first 6 blocks, task-aware codes K3-C128) answers. *Accuracy* is against
the truth, *agreement* against what the model says of the whole record. Every way may keep present slots only, and
argues for the class that the model predicts. Mean ± standard deviation over splits 10, 11 and 12.
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("judges", "run", "cost", "report"))
    parser.add_argument("--share", default="0/1", help="only the i-th of n shares of the jobs")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no job after this many seconds")
    parser.add_argument("--only", default="", help="only jobs that are about this")
    parser.add_argument("--leave", default="", help="no jobs that are about this")
    arguments = parser.parse_args()
    mine, of = (int(number) for number in arguments.share.split("/"))
    named = {f"{job['data']} {job['what']} {job['seed']}": job for job in jobs()}
    leave = arguments.leave or "\n"
    wanted = [job for name, job in named.items() if arguments.only in name and leave not in name][mine::of]
    match arguments.verb:
        case "judges":
            judges(wanted)
        case "run":
            run(wanted, arguments.limit)
        case "cost":
            cost()
        case _:
            report()
