"""The tables: each is a `TableSpec`, and `spec.py` lays all of them out."""

from __future__ import annotations

from tefm_bench.tables import codes, compared, explained, extractor, language, sequences, users, words
from tefm_bench.tables.spec import TableSpec

#: The paper's tables first, then our own.
TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        codes.RECONSTRUCTED,
        language.ALIGNED,
        codes.HIERARCHICAL,
        language.PREDICTED,
        language.ACROSS,
        extractor.KEPT,
        language.PRETRAINED,
        codes.SHAPED,
        codes.COUNTED,
        extractor.SMALLEST,
        users.USERS,
        sequences.SEQUENCES,
        users.ASIDE,
        explained.EXPLANATIONS,
        explained.CARDS_OF_A_MODEL,
        words.QUESTIONS,
        words.TEXT,
        users.ACROSS_DOMAINS,
        compared.COMPARED,
    )
}
