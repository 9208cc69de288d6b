"""One model across domains, compared with a model for each of them, and what adding a domain later costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tefm.bench.domain_runs import DomainDifference, ExtendRun, JointRun
from tefm.bench.experiments import Lookup, Pick, Setup, joined, row
from tefm.bench.measurement import Figures
from tefm.bench.table import Column, Row, Table
from tefm.bench.table_runs import MOST, OURS, ModelRun
from tefm.bench.tables.common import table_of
from tefm.bench.tables.users import METRICS, ahead, score_columns
from tefm.bench.user_tables import ALL_TABLES, DOMAINS

ABOUT = f"""Four domains, in one language model and in one each: whether a patient's last admission ends in death
(Diabetes130), whether ten consecutive flows are an attack (DDoS, PortScan: 10,000 flows each of the corrected
CIC-IDS2017 sample), and which of ten classes a flow is (UNSW-NB15, sampled to {MOST:,} flows). All are fitted with the
defaults of `tefm fit` on a machine without GPU, where codes and words are not aligned, without explanations, on the
same sequences in the same parts; a seed draws the sample, the split and the model, and figures are the mean ± sample
standard deviation (n − 1) over the seeds. *One model for all* has one fine-tuning, with as many steps as those of the
four models together. *Added later* is `tefm extend`: the three other domains are fitted together, then UNSW-NB15 is
added. *Ahead* is the difference to the model of this domain alone, on the same test sequences, with a 95% interval from
a paired bootstrap over test sequences. *Changed* is the largest absolute change of a probability of a test sequence,
between before and after the domain was added."""
COLUMNS = (*score_columns("ahead"), Column("changed", "changed", 9))
#: The domain that is added later.
LATER = "unsw_nb15"


def _single(setup: Setup, seed: int) -> tuple[ModelRun, ...]:
    # windows of consecutive rows: a sample of the rows would be other windows
    return tuple(
        setup.model_run(name, seed, sample="window" not in ALL_TABLES[name].task, align="none") for name in DOMAINS
    )


def joint_run(setup: Setup, seed: int) -> JointRun:
    """One model for all domains."""
    return JointRun(runs=_single(setup, seed))


def _extended(setup: Setup, seed: int) -> ExtendRun:
    runs = {run.table: run for run in _single(setup, seed)}
    added = runs.pop(LATER)
    return ExtendRun(runs=tuple(runs.values()), added=added)


def _scores(name: str) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        own = figures["domains"][name] if "domains" in figures else figures
        scores = own["methods"][OURS]["test"]["scores"]
        changed = figures.get("changed", {}).get(name)
        return {**{metric: scores[metric]["value"] for metric in METRICS}, "changed": changed}

    return pick


def _rows(setup: Setup, lookup: Lookup, name: str) -> Iterator[Row]:
    title, number = ALL_TABLES[name].title, list(DOMAINS).index(name)
    alone = tuple(_single(setup, seed)[number] for seed in setup.seeds)
    yield row({"domain": title, "model": "one model each"}, alone, lookup, _scores(name))
    later = "added later" if name == LATER else f"{ALL_TABLES[LATER].title} added later"
    lines: tuple[tuple[str, Sequence[JointRun]], ...] = (
        ("one model for all", tuple(joint_run(setup, seed) for seed in setup.seeds)),
        (later, tuple(_extended(setup, seed) for seed in setup.seeds)),
    )
    for line, runs in lines:
        keys = {"domain": title, "model": line}
        difference = DomainDifference(table=name, runs=tuple(runs), reference_runs=alone)
        yield joined(row(keys, runs, lookup, _scores(name)), row(keys, [difference], lookup, ahead))
    if name == LATER:
        (_, together), (_, added) = lines
        difference = DomainDifference(table=name, runs=tuple(added), reference_runs=tuple(together))
        yield row({"domain": title, "model": "added later, compared with one for all"}, [difference], lookup, ahead)


def table(setup: Setup, lookup: Lookup) -> Table:
    rows = [line for name in DOMAINS for line in _rows(setup, lookup, name)]
    return table_of(setup, "domains", "One model across domains", ABOUT, ("domain", "model"), COLUMNS, rows)
