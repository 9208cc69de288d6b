"""The free text of records, beside their codes, and to which record it belongs; `prompt_context` reads it.

A sequence's text is one string, which belongs to its last record, or *notes*: for each of its records a tuple with the
text of every column, empty where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from tefm.records.sequences import Sequences

#: For each record of a sequence, the text of each column.
Notes = tuple[tuple[str, ...], ...]
#: The text of a sequence.
Text = str | Notes


def notes_of(text: Text, records: int) -> Notes:
    """The text of a sequence as notes of its records; a string is the note of the last one.

    >>> notes_of("cough", 2)
    (('',), ('cough',))
    """
    return (("",),) * (records - 1) + ((text,),) if isinstance(text, str) else text


def record_texts(sequences: Sequences) -> list[str] | None:
    """The text of every record, one sequence after another; None where there are none."""
    if sequences.texts is None:
        return None
    notes = (notes_of(text, int(n)) for text, n in zip(sequences.texts, sequences.lengths, strict=True))
    return ["\n".join(filter(None, note)) for of_sequence in notes for note in of_sequence]


def stored(texts: Sequence[Text | list[list[str]]] | None) -> list[Text] | None:
    """Texts as they are read from JSON, which knows no tuples."""
    if texts is None:
        return None
    return [text if isinstance(text, str) else tuple(tuple(note) for note in text) for text in texts]
