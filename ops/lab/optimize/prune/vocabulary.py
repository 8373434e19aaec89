"""Remove rare tokens from a byte-level BPE vocabulary and from a decoder's embedding. Pure.

Every text can still be encoded, since the single bytes remain: a word whose token is gone takes more tokens.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from ops.lab.optimize.prune.parts import Indices
from shared.errors import SettingsError
from workers.graph.sources.checkpoint import Checkpoint, Weight

Merge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A smaller vocabulary.

    Attributes:
        definition: The content of its `tokenizer.json`.
        ids: Of each token of the smaller vocabulary its id in the whole one, ascending.
    """

    definition: bytes
    ids: Indices

    def renumbered(self, whole: Iterable[int]) -> list[int]:
        """Return the new ids of tokens that are kept."""
        new = {int(old): number for number, old in enumerate(self.ids)}
        return [new[token] for token in whole]


def trimmed(definition: bytes, used: Iterable[int], size: int) -> Vocabulary:
    """Return the vocabulary of at most `size` tokens: those in `used` with the parts from which they are merged, the
    single bytes and special tokens, then the tokens that training merged first.

    Raises:
        SettingsError: `size` is too small for the tokens that have to be kept.
    """
    document = msgspec.json.decode(definition, type=dict[str, Any])
    vocabulary: dict[str, int] = document["model"]["vocab"]
    merges = [_pair(merge) for merge in document["model"]["merges"]]
    made_by = {left + right: (left, right) for left, right in reversed(merges)}
    name_of = {number: token for token, number in vocabulary.items()}
    added = {each["content"] for each in document.get("added_tokens", [])}
    kept = {token for token in vocabulary if token not in made_by} | added
    for number in used:
        kept |= _with_parts(name_of[number], made_by, kept) if number in name_of else set()
    if len(kept) > size:
        raise SettingsError(
            f"--vocabulary {size}: the calibration's texts, single bytes and special tokens are {len(kept)} tokens; "
            "name at least as many"
        )
    for left, right in merges:
        more = _with_parts(left + right, made_by, kept)
        if len(kept) + len(more) > size:
            break
        kept |= more
    return _renumbered(document, kept, merges)


def without_tokens(checkpoint: Checkpoint, ids: Indices) -> Checkpoint:
    """Return the decoder with only these rows of its embedding and output head."""
    weights = dict(checkpoint.weights)
    for name in ("embed_tokens", "lm_head"):
        if (weight := weights.get(name)) is not None:
            weights[name] = _rows(weight, ids)
    return Checkpoint(architecture=replace(checkpoint.architecture, vocab_size=len(ids)), weights=weights)


def _rows(weight: Weight, ids: Indices) -> Weight:
    return Weight((len(ids), *weight.shape[1:]), lambda: np.take(weight.read(), ids, 0))


def _with_parts(token: str, made_by: Mapping[str, Merge], kept: set[str]) -> set[str]:
    """Return the token and those from which it is merged, without those that are kept already."""
    found: set[str] = set()
    left = [token]
    while left:
        if (each := left.pop()) not in kept and each not in found:
            found.add(each)
            left += made_by.get(each, ())
    return found


def _renumbered(document: dict[str, Any], kept: set[str], merges: list[Merge]) -> Vocabulary:
    """Return the vocabulary of these tokens, numbered from 0 in the order of their ids."""
    model = document["model"]
    old = dict(model["vocab"]) | {each["content"]: each["id"] for each in document.get("added_tokens", [])}
    ordered = sorted(kept, key=old.__getitem__)
    new = {token: number for number, token in enumerate(ordered)}
    model["vocab"] = {token: new[token] for token in ordered if token in model["vocab"]}
    model["merges"] = [list(merge) for merge in merges if {*merge, "".join(merge)} <= new.keys()]
    for each in document.get("added_tokens", []):
        each["id"] = new[each["content"]]
    document["post_processor"] = None  # Replyline adds special tokens itself
    return Vocabulary(msgspec.json.encode(document), np.array([old[token] for token in ordered]))


def _pair(merge: str | list[str]) -> Merge:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right
