"""One module per table: a function of the setup that looks up the measurements it needs."""

from __future__ import annotations

from collections.abc import Callable

from tefm.bench.experiments import Lookup, Setup
from tefm.bench.table import Table
from tefm.bench.tables import (
    alignment,
    beside,
    buckets,
    corroboration,
    crossdomain,
    curve,
    domains,
    explanations,
    heldout,
    hierarchy,
    levels,
    parts,
    prediction,
    pretraining,
    prompts,
    questions,
    rationalization,
    reconstruction,
    shapes,
    smallest,
    starts,
    supervision,
    text,
    tokens,
    users,
)

#: The paper's tables first, then our own.
TABLES: dict[str, Callable[[Setup, Lookup], Table]] = {
    "reconstruction": reconstruction.table,
    "alignment": alignment.table,
    "hierarchy": hierarchy.table,
    "prediction": prediction.table,
    "crossdomain": crossdomain.table,
    "rationalization": rationalization.table,
    "pretraining": pretraining.table,
    "shapes": shapes.table,
    "tokens": tokens.table,
    "smallest": smallest.table,
    "parts": parts.table,
    "supervision": supervision.table,
    "levels": levels.table,
    "buckets": buckets.table,
    "prompts": prompts.table,
    "starts": starts.table,
    "curve": curve.table,
    "tables": users.table,
    "beside": beside.table,
    "heldout": heldout.table,
    "explanations": explanations.table,
    "corroboration": corroboration.table,
    "questions": questions.table,
    "text": text.table,
    "domains": domains.table,
}
#: Tables of user tables: `--data` names their folder.
USERS = ("tables", "beside", "heldout", "explanations", "corroboration", "questions", "text", "domains")
#: Made only when named: the patients set aside are scored once, at the end; the others take a GPU.
ON_REQUEST = ("heldout", "beside", "questions", "text", "domains")
