"""Several domains in one language model, on the sequences and with the settings that each has in a model of its own.

Shapes: S sequences, Q classes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tefm.model.domains import Domains
from tefm.model.estimator import TEFM
from tefm.model.run import TaskTable, fit_frames
from tefm.pipeline.config import ModelConfig
from tefm_bench.measurement import Bench, Figures, Measurement
from tefm_bench.table_runs import OURS, ModelRun, differences, figures_on_test
from tefm_bench.user_data import UserData


class JointRun(Measurement):
    """One model for all these tables, which have the same seed."""

    KIND: ClassVar[str] = "domains-joint"

    runs: tuple[ModelRun, ...]

    @property
    def description(self) -> str:
        return f"{self.KIND}: {', '.join(run.table for run in self.runs)}, seed {self.runs[0].seed}"

    def prepare(self, bench: Bench) -> None:
        for run in self.runs:
            run.prepare(bench)

    def fitted(self, bench: Bench) -> tuple[Domains, dict[str, UserData]]:
        """The model, and the data of each domain."""
        data = {run.table: run.open(bench) for run in self.runs}
        tables = {name: task_table(of, of.task.model) for name, of in data.items()}
        fit_frames(tables, compare=False)
        return Domains({name: table.model for name, table in tables.items()}), data

    def measure(self, bench: Bench) -> Figures:
        domains, data = self.fitted(bench)
        return {"domains": {name: _figures(domains[name], of) for name, of in data.items()}}


class ExtendRun(JointRun):
    """One model for some tables, to which one more is added when it is finished."""

    KIND: ClassVar[str] = "domains-extended"

    added: ModelRun

    @property
    def description(self) -> str:
        return f"{super().description}, then {self.added.table}"

    def prepare(self, bench: Bench) -> None:
        super().prepare(bench)
        self.added.prepare(bench)

    def measure(self, bench: Bench) -> Figures:
        domains, data = self.fitted(bench)
        before = {name: _probabilities(domains[name], of) for name, of in data.items()}
        new = self.added.open(bench)
        table = task_table(new, domains.extension(new.task.model))
        fit_frames({"": table}, extends=domains, compare=False)
        extended = Domains({**domains, self.added.table: table.model})
        with tempfile.TemporaryDirectory() as folder:
            extended = Domains.load(extended.save(Path(folder) / "model"))
        after = {name: _probabilities(extended[name], of) for name, of in data.items()}
        return {
            "domains": {name: _figures(extended[name], of) for name, of in {**data, self.added.table: new}.items()},
            "changed": {name: float(np.abs(after[name] - p_SQ).max()) for name, p_SQ in before.items()},
        }


def task_table(data: UserData, config: ModelConfig) -> TaskTable:
    """What is fitted and tested."""
    return TaskTable(TEFM(data.schema, **dict(config)), data.own, data.task.split)


def _probabilities(model: TEFM, data: UserData) -> NDArray[np.float64]:
    return model.fitted.probabilities(model.preparation.slots(data.test))


def _figures(model: TEFM, data: UserData) -> Figures:
    fitted, p_SQ = model.fitted, _probabilities(model, data)
    return figures_on_test(data, fitted.classes, fitted.positive, {OURS: (p_SQ, fitted.decide(p_SQ))})


class DomainDifference(Measurement):
    """How far a domain of one model is ahead of the same in another model, or in one of its own, with a 95% interval.

    A pair of runs per seed; both are tested on the same sequences.
    """

    KIND: ClassVar[str] = "domains-difference"

    table: str
    runs: tuple[JointRun | ExtendRun, ...]
    reference_runs: tuple[ModelRun | JointRun, ...]
    resamples: int = 1_000

    @property
    def description(self) -> str:
        return f"{self.KIND} of {self.runs[0].KIND}, {self.table}, {len(self.runs)} seeds"

    def needs(self) -> tuple[Measurement, ...]:
        return (*self.runs, *self.reference_runs)

    def measure(self, bench: Bench) -> Figures:
        pairs = [
            ((self._of_table(bench, run), OURS), (self._of_table(bench, reference), OURS))
            for run, reference in zip(self.runs, self.reference_runs, strict=True)
        ]
        return differences(pairs, resamples=self.resamples)

    def _of_table(self, bench: Bench, run: Measurement) -> Figures:
        figures = bench.figures(run)
        assert figures is not None, "it was measured before"
        of_table: Figures = figures["domains"][self.table] if isinstance(run, JointRun) else figures
        return of_table
