"""The model registry, built from its records in their order. Pure."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct

from shared.errors import ProtocolError
from shared.versions.state import Move, State
from shared.versions.version import Version
from shared.wire.codec import record_decoder
from shared.wire.fields import Count, Revision
from shared.wire.lanes import CHAMPION, Lane

LEAST_OF_AN_ID: Final = 6
_NUM_RIGHT: Final = "_right.n"
_NIL: Final = msgspec.Raw(msgspec.msgpack.encode(None))


class Added(Struct, frozen=True, kw_only=True, tag="added"):
    """A version joins the registry. `signed_by` is the id of the key whose signature was found good."""

    version: Version
    author: str
    signed_by: str | None = None


class Checked(Struct, frozen=True, kw_only=True, tag="checked"):
    """A version was examined before its first customer. Records of earlier releases lack the last three attributes.

    Attributes:
        failures: why it failed; empty if it passed
        numbers: the shares of good answers and the numbers of questions, by figure
        questions_sha256: digest of the questions
        whole: all questions of the configured set (`model.questions`) were asked, not a sample
        outcomes: by figure, one character per question in the questions' order: 1 is good, 0 is bad, - does not count
    """

    revision: Revision
    author: str
    unix_ms: Count
    failures: tuple[str, ...] = ()
    numbers: dict[str, float] = msgspec.field(default_factory=dict)
    questions_sha256: str = ""
    whole: bool = True
    outcomes: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return how many questions were asked."""
        return int(sum(value for name, value in self.numbers.items() if name.endswith(_NUM_RIGHT)))

    def replaces(self, before: "Checked", champions_sha256: str) -> bool:
        """Return whether this check counts instead of an earlier one. The whole set counts more than any other
        questions. A failure of the whole set counts until the same questions, or as many that the champion has passed
        (`champions_sha256`), are passed; one of other questions until as many are."""
        if self.failures and not before.failures:
            return True
        known = ("", self.questions_sha256)  # without a digest the files failed, or the record is of an earlier release
        is_known = before.questions_sha256 in known or (self.whole and not before.whole)
        is_passed_by_champion = not self.failures and self.questions_sha256 == champions_sha256 != ""
        is_as_large = self.whole >= before.whole and self.size >= before.size
        return is_as_large and (is_known or is_passed_by_champion or not before.failures)


class Noted(Struct, frozen=True, kw_only=True, tag="noted"):
    """A rollout's decision that changes no state: started, held, frozen, resumed, ended. Its moves are `Move`s."""

    rollout: str
    kind: str
    reason: str
    unix_ms: Count
    numbers: dict[str, float] = msgspec.field(default_factory=dict)
    plan: msgspec.Raw = _NIL


class Unreadable(Struct, frozen=True, kw_only=True):
    """A move of another release, of which only the epoch and perhaps its time can be decoded. It takes that epoch."""

    epoch: Count
    unix_ms: float = math.inf


Entry = Added | Checked | Move | Noted


@dataclass(slots=True)
class Registry:
    """The content of the log, up to the last record that was applied. `state` is that of the newest move that can be
    read, `unreadable` the epoch of the newest that cannot, `unreadable_unix_ms` when that was written, if it can be
    read; the next readable move names the whole state and replaces both. `checks` are those of a version that no later
    one replaces. `moves` and `notes` are in their order; `keeps_notes` is False where no reader needs the notes."""

    state: State = field(default_factory=State)
    unreadable: Count = 0
    unreadable_unix_ms: float = math.inf
    versions: dict[Revision, Added] = field(default_factory=dict)
    checks: dict[Revision, list[Checked]] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    notes: list[Noted] = field(default_factory=list)
    keeps_notes: bool = True

    @property
    def epoch(self) -> int:
        """Return the epoch of the log's newest move, readable or not."""
        return max(self.state.epoch, self.unreadable)

    @property
    def blocked(self) -> str | None:
        """Return why no move may be written, and the remedy; None if the newest move can be read."""
        if self.epoch == self.state.epoch:
            return None
        remedy = "type it on a machine of the release that wrote it, upgrade this one, or if it is corrupt"
        return (
            f"epoch {self.epoch} cannot be read here; {remedy}: replyline versions rollback --over-epoch {self.epoch}"
        )

    def apply(self, entry: Entry | Unreadable) -> bool:
        """Apply the next record. Return whether it has an effect: of two moves with one epoch only the first has."""
        match entry:
            case Added(version=version):
                self.versions.setdefault(version.id, entry)
            case Checked(revision=revision):
                champions = self.check(self.state.aliases.get(CHAMPION, ""))
                sha256 = "" if champions is None or champions.failures else champions.questions_sha256
                kept = [each for each in self.checks.get(revision, ()) if not entry.replaces(each, sha256)]
                self.checks[revision] = [*kept, entry]
            case Move() | Unreadable() if entry.epoch != self.epoch + 1:
                return False
            case Move():
                self.state = entry.state
                self.moves.append(entry)
            case Unreadable():
                self.unreadable, self.unreadable_unix_ms = entry.epoch, entry.unix_ms
            case Noted() if self.keeps_notes:
                self.notes.append(entry)
        return True

    def state_at(self, now_unix_ms: float) -> State:
        """Return the state that holds now: of those whose time has come the one that was written last. A move whose
        time had not come when an unreadable one was written stays out, since that one may have taken it off."""
        until = min(now_unix_ms, self.unreadable_unix_ms)
        for move in reversed(self.moves):
            if move.state.effective_unix_ms <= (now_unix_ms if move.epoch > self.unreadable else until):
                return move.state
            if move.interim is not None:
                return move.interim
        return State()

    def waiting(self, now_unix_ms: float) -> Move | None:
        """Return the last move if its time is still to come. A later move takes its place."""
        last = self.moves[-1] if self.moves else None
        return last if last is not None and last.state.effective_unix_ms > now_unix_ms else None

    def check(self, revision: Revision) -> Checked | None:
        """Return the check that counts: the oldest failure, else the newest of the most questions. None without one."""
        checks = self.checks.get(revision, ())
        failed = next((each for each in checks if each.failures), None)
        return failed or max(reversed(checks), key=lambda each: (each.whole, each.size), default=None)

    def find(self, name: str) -> Version | None:
        """Return the version with that alias, id or name (the newest of several with that name); else the only version
        whose id begins with it, by `LEAST_OF_AN_ID` digits or more. None if there is no such version, or more than
        one."""
        revision = {**self.state.aliases}.get(name, name)  # type: ignore[call-overload]
        if revision in self.versions:
            return self.versions[revision].version
        named = [added.version for added in self.versions.values() if added.version.name == name]
        if not named and len(name) >= LEAST_OF_AN_ID:
            begun = [added.version for each, added in self.versions.items() if each.startswith(name)]
            named = begun if len(begun) == 1 else []
        return named[-1] if named else None

    def closed(self, lane: Lane, now_unix_ms: float) -> bool:
        """Return whether a lane has had a version and has none any more: what was asked of it is the champion's."""
        return not self.state_at(now_unix_ms).serves(lane) and any(move.state.serves(lane) for move in self.moves)

    def why_not(self, revision: Revision) -> str | None:
        """Return why a version may have no traffic, and what to do; None where it may."""
        if revision not in self.versions:
            return f"version {revision} is not registered; run: replyline versions add"
        check = self.check(revision)
        if check is None:
            return f"version {revision} has not been checked; run: replyline versions check {revision}"
        if check.failures:
            remedy = "this counts until it passes the same questions, or as many that the champion has passed"
            return f"version {revision} failed its check: {'; '.join(check.failures)}; {remedy}"
        passed = f"version {revision} has passed {check.size} of the questions, not the whole set"
        return None if check.whole else f"{passed}; run: replyline versions check {revision}"


class _Epoch(Struct):
    epoch: Count


class _Envelope(Struct, tag="move"):
    """The part of a move that every release can decode."""

    state: _Epoch
    unix_ms: float = math.inf


encode_entry: Final = msgspec.msgpack.Encoder().encode
_decode: Final[Callable[[bytes | None], Entry]] = record_decoder(Entry, "not of the registry")
_decode_envelope: Final[Callable[[bytes | None], _Envelope]] = record_decoder(_Envelope, "not a move")
_MOVE_KEY: Final = re.compile(rb"move/(\d{1,15})/")


def decode_entry(value: bytes | None) -> Entry | Unreadable:
    """Decode a record; of a move that cannot be decoded, its epoch. Raises `ProtocolError`."""
    try:
        return _decode(value)
    except ProtocolError:
        try:
            move = _decode_envelope(value)
            return Unreadable(epoch=move.state.epoch, unix_ms=move.unix_ms)
        except ProtocolError:
            pass
        raise


def unreadable_move(key: bytes | None) -> Unreadable | None:
    """Return the move that a record's key names, for a value without any readable part; None if it names none."""
    named = _MOVE_KEY.match(key or b"")
    return None if named is None else Unreadable(epoch=int(named[1]))


def key_of(entry: Entry, nonce: str) -> bytes:
    """Return the key of a record: no two share one, so compaction drops none. `nonce` is drawn for each record."""
    match entry:
        case Added(version=version):
            return f"added/{version.id}".encode()
        case Checked(revision=revision):
            return f"checked/{revision}/{nonce}".encode()
        case Move():
            return f"move/{entry.epoch}/{nonce}".encode()
        case Noted(rollout=rollout):
            return f"noted/{rollout}/{nonce}".encode()
