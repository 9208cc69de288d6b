"""Whether the parts of a bundle agree: classes, levels, entries, vocabulary, slots, explanations.

The manifest shows that nothing changed since it was written, not who wrote it: a bundle may come from anywhere.

Shapes: S sequences, N records, D slots, Q classes.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import ArtefactError
from tefm.base.files import refusing
from tefm.codes.coder import SlotCoder
from tefm.explain.look_alikes import LookAlikes
from tefm.explain.population import Cases
from tefm.language.prompts import LONGEST_TEXT
from tefm.language.vocabulary import CodeVocabulary
from tefm.monitor.reference import MonitorReference
from tefm.pipeline.fitted import Fitted
from tefm.pipeline.prepare import Preparation
from tefm.questions.answering import feature_widths
from tefm.questions.catalogue import slot_of
from tefm.tabular.heads import of_regression

#: The most classes of a bundle.
MOST_CLASSES = 10_000


def check_agreement(fitted: Fitted, preparation: Preparation, folder: Path) -> None:
    """Refuse a model whose parts contradict each other."""
    checks = (_classes(fitted), _tokens(fitted, preparation), _slots(fitted), _questions(fitted, preparation))
    for problem in itertools.chain(*checks):
        raise ArtefactError(
            f"the parts of this model do not belong together: {problem}", file=folder, remedy="save it again"
        )


def check_width(path: Path) -> None:
    """Refuse a surrogate whose settings promise another width than its weights have, before memory is taken for it."""
    from safetensors import safe_open

    with refusing(path, "part of the model"), safe_open(path, framework="np") as file:
        width = file.get_slice("surrogate.outer.1.weight").get_shape()[1]
        promised = json.loads(file.metadata()["facts"])["config"]["surrogate_hidden"]
    if width != promised:
        raise ArtefactError(f"the weights have the width {width}, not {promised}", file=path, remedy="save it again")


def check_names(classes: Any, values: Any, path: Path) -> None:
    """Refuse classes without end, before they are turned into tokens, and values of the label that do not fit them."""
    names = classes if isinstance(classes, list) else [None]
    if len(names) > MOST_CLASSES or not all(isinstance(name, str) and len(name) <= LONGEST_TEXT for name in names):
        most = f"at most {MOST_CLASSES:,} names of at most {LONGEST_TEXT:,} characters"
        raise ArtefactError(f"the classes are not {most}", file=path, remedy="save it again")
    kinds = {type(value) for value in values} if isinstance(values, list) and len(values) == len(names) else {None}
    if values is not None and not (len(kinds) == 1 and kinds <= {bool, int, float}):
        raise ArtefactError("the values of the label are not those of the classes", file=path, remedy="save it again")


def check_reference(reference: MonitorReference, classes: int, path: Path) -> None:
    """Refuse counts for monitoring that no records could have."""
    for measured in filter(None, (reference.whole, reference.growing)):
        answers, counted = measured.answers, [tally.counts_GJ for tally in measured.tallies]
        is_sound = (
            answers.p_SQ.shape == (len(answers.label_S), classes)
            and _are_probabilities(answers.p_SQ)
            and bool(((answers.label_S >= -1) & (answers.label_S < classes)).all())
            and all(len(counts_GJ) == classes + 1 and counts_GJ.min() >= 0 for counts_GJ in counted)
            and all(map(_is_finite, (measured.records, *measured.errors)))
        )
        if not is_sound:
            raise ArtefactError("the counts for monitoring are of other classes", file=path, remedy="save it again")


def _classes(fitted: Fitted) -> Iterator[str]:
    classes, calibration = fitted.classes, fitted.calibration
    count = len(classes)
    if count < 2 or len(set(classes)) < count or not all(isinstance(name, str) and name for name in classes):
        yield f"the classes are {list(classes)!r}"[:200]
    if not _is_number_below(fitted.positive, count) or not _is_number_below(calibration.positive, count):
        yield f"the class number {fitted.positive!r} is out of range"
    if len(fitted.shares) != count or not all(_is_finite(share) and share >= 0 for share in fitted.shares):
        yield f"there are {count} classes and {len(fitted.shares)} shares of them"
    for name, values in (("bias", calibration.bias), ("weights", calibration.weights)):
        if len(values) not in (0, count) or not all(map(_is_finite, values)):
            yield f"the calibration has {len(values)} values of {name} for {count} classes"
    if calibration.threshold is not None and count != 2:
        yield f"a threshold is for two classes, not {count}"
    if fitted.buckets is not None and fitted.buckets.names != classes:
        yield "the buckets of the number are not the classes"
    if fitted.coder.classes_ and fitted.buckets is None and not set(classes) <= set(fitted.coder.classes_):
        yield "the codes were learned for other classes"
    if fitted.explainer is not None and len(fitted.explainer.surrogate.cut_Q) != count:
        yield f"the masks were learned for {len(fitted.explainer.surrogate.cut_Q)} classes"


def _tokens(fitted: Fitted, preparation: Preparation) -> Iterator[str]:
    """The code tokens that the language model reads are those of the tokenizer, and both know them."""
    classifier = fitted.classifier
    ids, coder, backbone = classifier.writer.ids, fitted.coder, classifier.backbone
    embedding: Any = backbone.model.get_input_embeddings()
    rows = int(embedding.num_embeddings)
    if len(backbone.tokenizer) > rows:
        yield f"the tokenizer has {len(backbone.tokenizer):,} tokens, the language model {rows:,}"
    if ids is None:
        yield "there are codes without tokens"
        return
    if (ids.levels, ids.entries, ids.profile) != (coder.levels, coder.config.entries, coder.profile_levels):
        known = f"{coder.levels} × {coder.config.entries}"
        yield f"the tokenizer has {known} codes, the language model {ids.levels} × {ids.entries}"
    if not isinstance(ids.first, int) or ids.first < 0 or max(ids.all) >= len(backbone.tokenizer):
        yield f"the code tokens begin at {ids.first!r}, outside the vocabulary"
    vocabulary, stem = classifier.vocabulary, CodeVocabulary.of(preparation.schema.record, levels=1, entries=1).stem
    named = re.fullmatch(rf"{stem}\d*", vocabulary.stem)  # of several domains, stems may be numbered
    if named is None or backbone.tokenizer.convert_tokens_to_ids(list(vocabulary.tokens)) != ids.all:
        yield f"the vocabulary does not have the code tokens of the record {preparation.schema.record!r}"


def _slots(fitted: Fitted) -> Iterator[str]:
    """What is about slots is about those of the tokenizer."""
    coder, trees, look_alikes = fitted.coder, fitted.trees, fitted.look_alikes
    if coder.mode_D_.shape != (coder.layout.width,) or (coder.mode_D_ > coder.layout.sizes_D).any():
        yield "the most common values of the slots are of other slots"
    networks = [own.network for own in (coder, coder.profile_) if own is not None]
    if not all(bool(values.isfinite().all()) for network in networks for values in network.state_dict().values()):
        yield "the weights of the tokenizer are not all finite"
    if trees is not None and not trees.fits(coder.layout, len(fitted.classes), fitted.config.window or 1):
        yield "the trees beside the language model are of other slots or classes"
    if look_alikes is not None and not _is_sound(look_alikes, coder, len(fitted.classes)):
        yield "the population of the explanations is of other slots or classes"


def _questions(fitted: Fitted, preparation: Preparation) -> Iterator[str]:
    """The questions are about fields and values that the tokenizer knows."""
    book, default = fitted.book, fitted.question
    if book is None:
        if default is not None:
            yield "it answers a question by default, and has none"
        return
    if not book.trained and not book.taught:
        yield "no question was trained or taught"
    if default is not None and (not isinstance(default, str) or book.learned(default) is None):
        yield f"it answers {default!r} by default, which it has not learned"[:200]
    widths = feature_widths(fitted.coder, fitted.classifier.backbone)
    for entry in book.entries:
        question, regression = entry.question, entry.regression
        heads = [entry.head, None if regression is None else of_regression(regression)]
        if not all(head is None or head.fits(widths) for head in heads):
            yield f"what was learned for {question.text!r} does not fit the model"[:200]
        if (
            question.kind in ("next", "within")
            and question.source is not None
            and slot_of(preparation.vectoriser, question) is None
        ):
            yield f"the tokenizer does not know what {question.text!r} is about"[:200]


def _is_sound(look_alikes: LookAlikes, coder: SlotCoder, classes: int) -> bool:
    population = look_alikes.population
    count = len(population.slots.starts) - 1
    return (
        all(_are_cases(cases, coder, classes) for cases in (population, look_alikes.cases))
        and population.p_SQ.shape == (count, classes)
        and _are_probabilities(population.p_SQ)
        and population.answers_S.shape == (count,)
        and bool(((population.answers_S >= 0) & (population.answers_S < classes)).all())
    )


def _are_cases(cases: Cases, coder: SlotCoder, classes: int) -> bool:
    slots, count, layout = cases.slots, len(cases.slots.starts) - 1, coder.layout
    return (
        slots.x_ND.ndim == 2
        and slots.x_ND.shape[1] == layout.width
        and bool((slots.x_ND <= layout.sizes_D).all())
        and count > 0
        and slots.starts[0] == 0
        and slots.starts[-1] == len(slots.x_ND)
        and bool((np.diff(slots.starts) > 0).all())
        and cases.labels_S.shape == (count,)
        and bool(((cases.labels_S >= -1) & (cases.labels_S < classes)).all())
        and (slots.texts is None or len(slots.texts) == count)
    )


def _are_probabilities(p_SQ: NDArray[Any]) -> bool:
    """Whether the numbers of each row are from 0 to 1 and add up to 1."""
    return bool((p_SQ >= 0).all() and (np.abs(p_SQ.sum(axis=1) - 1) < 1e-3).all())


def _is_number_below(number: object, count: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < count


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
