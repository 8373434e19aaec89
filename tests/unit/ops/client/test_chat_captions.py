"""The terminal says of each answer whose words it is, and which of them are not the model's."""

from typing import get_args

import pytest
from rich.console import Console

from ops.client.chat import _print_caption
from shared.wire.outcome import Grounding, Replaced, Response, Source, Timings, Usage

ENTRY = Grounding(id="returns", question="How long can I return it?", answer="Within 30 days.")


def printed(source: Source, text: str = "", *replaced: Replaced) -> list[str]:
    console = Console(width=200)
    response = Response(
        id="r",
        status="completed",
        reason="stop",
        source=source,
        output_text=text,
        usage=Usage(),
        timings=Timings(),
        grounding=(ENTRY,),
        replaced=replaced,
    )
    with console.capture() as capture:
        _print_caption(response, console)
    return capture.get().splitlines()


@pytest.mark.parametrize("source", get_args(Source))
def test_each_source_has_its_words(source: Source) -> None:
    [line] = printed(source)
    assert line.endswith("based on: How long can I return it?")
    assert len({printed(each)[0] for each in get_args(Source)}) == len(get_args(Source))


def test_what_was_replaced_is_quoted_and_what_was_left_out_is_said() -> None:
    text = "Easy 😀. Within 30 days."
    quoted, gap, caption = printed(
        "mixed", text, Replaced(offset=8, length=15, id="returns"), Replaced(offset=23, length=0)
    )
    assert quoted == "from the help pages: “Within 30 days.”"
    assert "left out" in gap
    assert caption.startswith("AI answer, in part")
