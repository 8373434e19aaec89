"""An answer received again is shown once, and restarts from its beginning if its text differs."""

import pytest

from shared.client.telling import AnswerEvent, AnswerText
from shared.wire.messages import ResponseCreated, ResponseDelta, ResponseDone
from shared.wire.outcome import Response, Timings, Usage


def created() -> ResponseCreated:
    return ResponseCreated(response_id="r", event_id="e", bucket="short")


def delta(offset: int, text: str) -> ResponseDelta:
    return ResponseDelta(response_id="r", seq=0, offset=offset, delta=text, cursor="c")


def done(text: str) -> ResponseDone:
    response = Response(
        id="r",
        status="completed",
        reason="stop",
        source="model",
        output_text=text,
        usage=Usage(),
        timings=Timings(),
    )
    return ResponseDone(response=response, cursor="c")


def shown(*told: str | None) -> str:
    """Return the displayed text; `told` are consecutive deltas, None a restart, which is displayed as `|`."""
    telling, text = AnswerText(), ""
    handed: list[AnswerEvent] = []
    for piece in told:
        event = created() if piece is None else delta(len(text), piece)
        text = "" if piece is None else text + piece
        handed += telling.take(event)
    *rest, last = [*handed, *telling.take(done(text))]
    assert last == done(text)
    return "".join(each.delta if isinstance(each, ResponseDelta) else "|" for each in rest)


@pytest.mark.parametrize(
    ("told", "screen"),
    [
        ((None, "We ", "refund."), "|We refund."),
        ((None, "We re", None, "We ", "refund", "."), "|We refund."),
        ((None, "We re", None, "We refund.", None, "We", " refund."), "|We refund."),
        ((None, "We re", None, "Ask the help pages."), "|We re|Ask the help pages."),
        ((None, "We re", None, "We ", "deliver."), "|We re|We deliver."),
        ((None, "We refund.", None, "We"), "|We refund.|We"),
        ((None, "We refund.", None), "|We refund.|"),
        ((None, None, "We refund."), "|We refund."),
    ],
)
def test_shown_text_is_not_repeated_and_never_spliced(told: tuple[str | None, ...], screen: str) -> None:
    assert shown(*told) == screen


def test_text_that_a_delta_repeats_is_returned_once() -> None:
    telling = AnswerText()
    telling.take(created())
    telling.take(delta(0, "We re"))
    assert telling.take(delta(3, "refund.")) == [delta(5, "fund.")]
