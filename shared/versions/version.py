"""A model version: the model's files, system prompt and everything else that changes with them, under an id that is a
digest of all of these. An id therefore never means another model. Pure."""

import hashlib
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from shared.wire.fields import Count, Revision
from shared.wire.messages import Language

_ID_CHARS: Final = 32
_SHOWN_CHARS: Final = 12

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*(?!\n)$")]


class Card(Struct, frozen=True, kw_only=True):
    """The facts about a version that people choose by. `evaluations` are named figures of the evaluation sets."""

    languages: tuple[Language, ...] | None = None
    context_tokens: Count = 0
    precision: str = ""
    evaluations: dict[str, float] = msgspec.field(default_factory=dict)
    notes: str = ""


class Version(Struct, frozen=True, kw_only=True):
    """A version's document. Its id is a digest of the document, of 128 bits: no version can change.

    `name` is for people. `manifest_sha256` is that of the model folder's manifest.json, which names the sha256 of each
    file, and `golden_sha256` that of golden.json. `model` and `model_revision` are the manifest's name and revision.
    `base_revision` is that of the model which an adapter was merged into. `system_prompt` begins its prompts, None: the
    worker's own setting does. `trained_on` are the digests of the conversations that it
    was trained on.

    A document of an earlier release has no `golden_sha256` and an id of 48 bits."""

    name: Name
    model: str
    model_revision: str
    manifest_sha256: str
    base_revision: str | None = None
    system_prompt: str | None = None
    card: Card = Card()
    trained_on: tuple[str, ...] = ()
    golden_sha256: str | None = None
    added_unix_ms: Count = 0

    @property
    def id(self) -> Revision:
        """Return the id, which requests and answers name as their `revision`."""
        fields, chars = msgspec.to_builtins(self), _ID_CHARS
        if self.golden_sha256 is None:
            del fields["golden_sha256"]
            chars = _SHOWN_CHARS
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()[:chars]


def abbreviated(revision: Revision) -> str:
    """Return an id as tables show it: its first 12 digits. Commands accept any six or more that only one id
    begins with."""
    return revision[:_SHOWN_CHARS] if len(revision) == _ID_CHARS else revision
