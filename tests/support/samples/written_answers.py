"""An answer as the engine's thread writes it: token by token, its deltas taken now and then."""

from collections.abc import Iterable

from shared.model.tokenizer import Tokenizer
from shared.wire.messages import ReplyDelta, ReplyDone
from shared.wire.outcome import Timings, Usage
from workers.answer.guard import FactGuard
from workers.answer.stream import Answer

TOKENIZER = Tokenizer.byte_level()


def answer(*stops: str, guard: FactGuard | None = None) -> Answer:
    return Answer(
        request_id="r",
        session_id="s",
        attempt=7,
        token_bytes=TOKENIZER.token_bytes,
        stops=stops,
        guard=guard,
        revision="v7",
        lane="canary",
    )


def add(written: Answer, text: str, taken: Iterable[bool] = ()) -> list[ReplyDelta]:
    """Its tokens, until a stop string stops it; after which of them what is new is taken."""
    takes, deltas = iter(taken), list[ReplyDelta]()
    for token_id in TOKENIZER.encode_text(text):
        written.add(token_id)
        if next(takes, False) and (delta := written.pop_delta()) is not None:
            deltas.append(delta)
        if written.stopped:
            break
    return deltas


def write(written: Answer, text: str, taken: Iterable[bool] = ()) -> str:
    """To its end; what its deltas make together, which follow one another without gap."""
    deltas = add(written, text, taken)
    written.finish()
    if (delta := written.pop_delta()) is not None:
        deltas.append(delta)
    together = ""
    for seq, delta in enumerate(deltas):
        assert (delta.seq, delta.offset) == (seq, len(together))
        assert delta.delta
        assert (delta.request_id, delta.session_id, delta.attempt) == ("r", "s", 7)
        together += delta.delta
    return together


def done(written: Answer) -> ReplyDone:
    return written.done(status="completed", reason="stop", usage=Usage(), timings=Timings(), model="m")
