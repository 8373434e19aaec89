"""The check of wording: which texts it reads, which phrases it counts, and when it fails."""

import json

import pytest

from tests.wording.__main__ import FIGURES, ROOT, Room, complaints, lowered, rooms_of

SOURCE = '''"""Return what the gateway is told.

Nobody reads it.
"""

import typer

# It goes on by then.
limit = typer.Option(help="of its own")
text = "whoever reads this is a customer"
'''


def read(source: str) -> Room:
    room = Room()
    room.read("gateway/a.py", source)
    return room


def test_docstrings_comments_and_help_are_read_and_other_texts_are_not() -> None:
    assert [(place, phrase) for place, phrase, _ in read(SOURCE.replace("Nobody", "nobody")).hits] == [
        ("gateway/a.py:1", "told"),
        ("gateway/a.py:3", "nobody"),
        ("gateway/a.py:9", "of its own"),
        ("gateway/a.py:8", "goes on"),
        ("gateway/a.py:8", "by then"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Return the partitions that this worker reads.",
        "Treat a missing report as unknown, and retry for as long as the outage lasts.",
        "The address stands alone; it is taken for each of the requests.",
    ],
)
def test_plain_text_has_no_hits(text: str) -> None:
    assert read(f'"""{text}"""').hits == []


def test_room_above_its_figure_is_named_with_the_place_and_the_remedy() -> None:
    rooms = {"gateway/a": read('"""Return what the client is told: one word in ten."""')}
    assert complaints(rooms, {"gateway/a": rooms["gateway/a"].rate}) == []
    (line,) = complaints(rooms, {"gateway/a": rooms["gateway/a"].rate - 1})
    assert "gateway/a.py:1 “told”: write reports" in line


def test_new_room_must_be_nearly_clean() -> None:
    assert complaints({"gateway/new": read('"""Tell nobody, it is told."""')}, {}) != []


def test_figures_only_fall_and_rooms_that_are_gone_are_left_out() -> None:
    rooms = {"gateway/a": Room(words=1_000, hits=[("gateway/a.py:1", "told", "says")])}
    assert lowered(rooms, {"gateway/a": 50, "gateway/gone": 5}) == {"gateway/a": 10}
    assert lowered(rooms, {"gateway/a": 5}) == {"gateway/a": 5}


def test_every_room_of_this_tree_keeps_its_figure() -> None:
    assert complaints(rooms_of(ROOT), json.loads(FIGURES.read_text())) == []
