"""What users do instead, and what records cost as text: baselines on the same split, tokens of every form."""

from __future__ import annotations

import copy
from typing import ClassVar

import numpy as np

from tefm.baselines.choice import STEPS
from tefm.bench.data import DATA, FLOWS, PARTS
from tefm.bench.measurement import Bench, Found, Measurement


class Baseline(Measurement):
    """One baseline, chosen on the validation sequences, scored on the test sequences once."""

    KIND: ClassVar[str] = "baseline"

    data: str
    split: int
    model: str
    task: str | None = None
    #: of the models that learn step by step, at most
    steps: int = STEPS

    def measure(self, bench: Bench) -> Found:
        from tefm.bench.baselines.compare import BaselineData, evaluate_baselines

        data = bench.sources.split(self.data, self.split)
        task = data.tasks[self.task or DATA[self.data][0]]
        given = BaselineData(
            data.x_ND,
            data.layout,
            task,
            np.array(task.classes, dtype=object)[task.labels_S],
            np.array(PARTS)[task.part_S],
            texts=bench.sources.texts(self.data, self.split) if self.model == "tfidf" else None,
        )
        found = evaluate_baselines(
            given,
            models=(self.model,),
            kinds=("last", "flat") if self.data in FLOWS else ("last", "history"),
            positive=task.positive,
            seed=self.split,
            steps=self.steps,
        )
        return dict(found[self.model])


class Tokens(Measurement):
    """Tokens per sequence of every form, as the tokenizers of the backbones count them."""

    KIND: ClassVar[str] = "tokens"

    data: str
    split: int
    backbone: str
    levels: int = 3
    entries: int = 128
    #: sequences that are counted
    most: int = 100
    #: count as Qwen3, Gemma-2 and Phi-4-mini do, too: their tokenizers come from package indexes
    families: bool = True

    def measure(self, bench: Bench) -> Found:
        from tefm.bench.predictions import named, question
        from tefm.language.backbone import open_backbone
        from tefm.language.prompts import PromptWriter
        from tefm.language.token_counts import account, families
        from tefm.language.vocabulary import CodeVocabulary, TokenIds
        from tefm.records.serialise import FORMATS, serialise

        data = bench.sources.dataset(self.data, self.split)
        task = bench.sources.split(self.data, self.split).tasks[DATA[self.data][0]]
        known = {named(self.backbone): open_backbone(self.backbone, layers=1, device="cpu").tokenizer}
        known |= families() if self.families else {}
        chosen = np.random.default_rng(0).permutation(len(data.sequences))[: self.most]
        some = data.sequences.select(np.sort(chosen))
        texts: dict[str, list[str]] = {name: serialise(data.frame, data.schema, some, name) for name in FORMATS}
        codes_NK = np.zeros((len(some.rows), self.levels), dtype=np.int64)
        vocabulary = CodeVocabulary.of(data.schema.record, levels=self.levels, entries=self.entries)
        found = []
        for name, plain in known.items():
            lengths, tokenizer = {}, copy.deepcopy(plain)
            tokenizer.add_tokens(list(vocabulary.tokens), special_tokens=True)
            ids = TokenIds(len(plain), self.levels, self.entries)
            for style in ("compact", "full"):
                asked = question(DATA[self.data][0], style, task.classes, task.positive)
                written = PromptWriter(tokenizer, asked, task.classes, ids).of_codes(codes_NK, some.starts)
                lengths[f"codes, {style} prompt"] = np.array([len(prompt) for prompt in written])
            found += [vars(row) for row in account(texts, {name: tokenizer}, lengths=lengths)]
        return {"rows": found}
