"""Comparisons: baselines on the same split, and how many tokens the records take as text."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tefm.tables.sequences import PARTS, Sequences
from tefm.tabular.learners import STEPS
from tefm_bench.data import DATA, FLOWS, SplitData
from tefm_bench.measurement import Bench, Figures, Measurement


class Baseline(Measurement):
    """One baseline, its settings chosen on the validation sequences, scored once on the test sequences."""

    KIND: ClassVar[str] = "baseline"

    data: str
    split: int
    model: str
    #: at most, for models that learn in steps
    steps: int = STEPS

    def texts(self, bench: Bench) -> list[str] | None:
        """The texts of all sequences, for the one baseline that reads them."""
        return bench.sources.texts(self.data, self.split) if self.model == "tfidf" else None

    def prepare(self, bench: Bench) -> None:
        bench.sources.split(self.data, self.split)
        self.texts(bench)

    def measure(self, bench: Bench) -> Figures:
        from tefm_bench.baselines.compare import BaselineData, evaluate_baselines

        data = bench.sources.split(self.data, self.split)
        task = data.tasks[DATA[self.data]]
        examples = BaselineData(
            data.x_ND,
            data.layout,
            task.sequences,
            np.array(task.classes, dtype=object)[task.labels_S],
            np.array(PARTS)[task.part_S],
            texts=self.texts(bench),
        )
        figures = evaluate_baselines(
            examples,
            models=(self.model,),
            kinds=("last", "flat") if self.data in FLOWS else ("last", "history"),
            positive=task.positive,
            seed=self.split,
            steps=self.steps,
        )
        return dict(figures[self.model])


class Tokens(Measurement):
    """Tokens per sequence as codes and as text in several formats, counted with the tokenizers of the backbones."""

    KIND: ClassVar[str] = "tokens"

    data: str
    split: int
    backbone: str
    levels: int = 3
    entries: int = 128
    #: sequences that are counted, at most
    most: int = 100
    #: also count as Qwen3, Gemma-2 and Phi-4-mini do; their tokenizers come from package indexes
    families: bool = True

    def prepare(self, bench: Bench) -> None:
        bench.sources.split(self.data, self.split)

    def measure(self, bench: Bench) -> Figures:
        from tefm.language.backbone import open_backbone
        from tefm.language.prompts import PromptWriter
        from tefm.language.shortening import count_forms
        from tefm.language.vocabulary import CodeVocabulary, TokenIds
        from tefm.tables.serialise import FORMATS, serialise
        from tefm_bench.backbones import title_of
        from tefm_bench.families import families

        dataset = bench.sources.dataset(self.data, self.split)
        data, task = bench.sources.split(self.data, self.split), DATA[self.data]
        classes = data.tasks[task].classes
        tokenizers = {title_of(self.backbone): open_backbone(self.backbone, layers=1, device="cpu").tokenizer}
        tokenizers |= families() if self.families else {}
        sampled = np.random.default_rng(0).permutation(len(dataset.sequences))[: self.most]
        sequences = dataset.sequences.select(np.sort(sampled))
        texts: dict[str, list[str]] = {
            name: serialise(dataset.frame, dataset.schema, sequences, name) for name in FORMATS
        }
        texts["bucket numbers"] = bucket_numbers(data, sequences)
        codes = Sequences(np.zeros((len(sequences.rows), self.levels), dtype=np.int64), sequences.starts)
        vocabulary = CodeVocabulary.of(dataset.schema.record, levels=self.levels, entries=self.entries)
        counts = []
        for name, plain in tokenizers.items():
            lengths, tokenizer = {}, copy.deepcopy(plain)
            tokenizer.add_tokens(list(vocabulary.tokens), special_tokens=True)
            ids = TokenIds(len(plain), self.levels, self.entries)
            for style in ("compact", "full"):
                writer = PromptWriter(tokenizer, data.prompt(task, style), classes, ids)
                prompts = writer.of_codes(codes)
                lengths[f"codes, {style} prompt"] = np.array([len(prompt) for prompt in prompts])
            counts += [vars(count) for count in count_forms(texts, name, tokenizer, lengths)]
        return {"rows": counts}


def bucket_numbers(data: SplitData, sequences: Sequences) -> list[str]:
    """What codes carry, as text: a line per record with the numbers of its buckets and values, and its members."""
    slots, is_member_D = data.layout.slots, data.layout.member_D

    def line(x_D: NDArray[Any]) -> str:
        members = [str(slots[i].member) for i in np.flatnonzero(is_member_D & (x_D > 0))]
        return ",".join([*map(str, x_D[~is_member_D].tolist()), *members])

    lines = [line(x_D) for x_D in data.x_ND[sequences.rows]]
    return ["\n".join(lines[start:end]) for start, end in pairwise(sequences.starts.tolist())]
