"""Record all that a world's Kafka and Redis have held, including deleted records, for the oracle of texts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from shared.conversation.turn import Turn, decode_turn
from shared.wire.messages import ChatRequest, ReplyDone
from tests.chaos.ledger.recorded import Recorded, Times, times_away
from tests.chaos.ledger.requests import Ledger
from tests.chaos.ledger.shipped import Shipped, speakers_of
from tests.world.processes import CANARY_REVISION, WORKERS, settings_of

_TURNS: Final = ":turns"


class Recording:
    """Turns by conversation when each is written, the times at which a conversation's turns were deleted, and log lines
    by process. Times are Unix milliseconds by the world's own clock."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Turn]] = defaultdict(list)
        self._deleted: dict[str, list[Times]] = defaultdict(list)
        self._lines: dict[str, list[tuple[float, dict[str, Any]]]] = defaultdict(list)

    def ran(self, command: str, args: Sequence[Any], at_ms: float) -> None:
        """Record a command that Redis has carried out, if it writes turns or deletes them."""
        if command == "rpush" and (session := _session_of(args[0])) is not None:
            self._kept[session] += map(decode_turn, args[1:])
        elif command in ("del", "unlink"):
            for session in filter(None, map(_session_of, args)):
                self._deleted[session].append((at_ms, at_ms))

    def logged(self, process: str, said: dict[str, Any], at_ms: float) -> None:
        """Record a line of a process's log."""
        self._lines[process.partition(".")[0]].append((at_ms, said))

    def recorded(self, requests: Iterable[ChatRequest], ends: Iterable[ReplyDone], away: Iterable[Times]) -> Recorded:
        """Return the record; `away`: when something was done to Redis itself."""
        times = [*away, *(each for lines in self._lines.values() for each in times_away(lines))]
        times += [(at_ms, at_ms) for lines in self._lines.values() for at_ms, said in lines if _loses_turn(said)]
        recorded = Recorded(kept=self._kept, deleted=self._deleted, away=times)
        for request in requests:
            recorded.add_request(request)
        for done in ends:
            recorded.ends[done.request_id].append(done)
        return recorded


def oracle_of(ledger: Ledger, recorded: Recorded, *, canary: bool, joined: bool) -> Shipped:
    """Return the oracle of a world's texts: of its workers, of the canary's version, and of the worker that joins with
    another system text."""
    speakers = speakers_of(settings_of("worker", 1), [CANARY_REVISION] if canary else [])
    return Shipped(ledger, recorded, speakers + (speakers_of(settings_of("worker", WORKERS)) if joined else []))


def _loses_turn(said: dict[str, Any]) -> bool:
    """Return whether a line of a log says that an exception has cost a turn."""
    return (said["event"], said.get("what")) == ("fault", "history")


def _session_of(key: Any) -> str | None:
    """Return the id of the session whose turns a key of Redis has."""
    name = key.decode() if isinstance(key, bytes) else str(key)
    return name.removesuffix(f"}}{_TURNS}").partition("/")[2] if name.endswith(_TURNS) else None
