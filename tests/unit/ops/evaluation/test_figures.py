"""An answer's figures are supported by its sources, or they are invented."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.evaluation.judging.figures import figures, foreign
from shared.faq.entries import PACKAGED_PATH, read_entries

ANSWERS = [entry.answer for entry in read_entries(PACKAGED_PATH)]


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        ("You have thirty days.", "within 30 days"),
        ("Within one hour.", "for 60 minutes after ordering"),
        ("It takes two years.", "24 months"),
        ("About 3 days.", "up to 3 working days"),
        ("It is €4.90.", "costs 4.90 euros"),
        ("Take AX 3391 B.", "the AX-3391-B runs small"),
        ("Write to help@harborandpine.example.", "help@harborandpine.example and we answer"),
        ("By January 31st.", "until 31 January"),
        ("From 8 am to 8 pm.", "8:00–20:00"),
        ("1. Open the page.\n2. Click it.", "Open the page and click"),
        ("Choose the one you like.", "nothing"),
        ("十四天内付款。", "14 天内"),
        ("大约两个工作日。", "2 个工作日"),
        ("Batteries of 12 V do not fit.", "And my old one with 12 volts?"),
    ],
)
def test_what_is_said_in_other_words_is_borne_out(answer: str, source: str) -> None:
    assert foreign(answer, [source]) == []


@pytest.mark.parametrize(
    ("answer", "source", "invented"),
    [
        ("You have fourteen days.", "within 30 days", ["14 day"]),
        ("Within 30 minutes.", "within 30 days", ["30 minute"]),
        ("It takes 3 working days.", "3 days", ["3 working day"]),
        ("It costs $5.", "costs €5", ["5 usd"]),
        ("Take AX-3391-C.", "the AX-3391-B", ["ax-3391-c"]),
        ("See www.harborandpine.com for more.", "help@harborandpine.example", ["www.harborandpine.com"]),
        ("By 24 January.", "until 24 December", ["24 january"]),
        ("Open until 21:00.", "open until 20:00", ["21:00"]),
        ("We are here 24/7.", "Monday to Friday", ["24", "7"]),
        ("五天内退款。", "3 天内", ["5天"]),
    ],
)
def test_what_stands_nowhere_is_foreign(answer: str, source: str, invented: list[str]) -> None:
    assert [figure.shown for figure in foreign(answer, [source])] == invented


@given(st.text())
def test_a_text_bears_itself_out(text: str) -> None:
    assert foreign(text, [text]) == []


@given(st.sampled_from(ANSWERS), st.integers(10_000, 99_999))
def test_a_number_put_into_an_answer_is_found(answer: str, number: int) -> None:
    assert str(number) in [figure.number for figure in foreign(f"{answer} {number} €", [answer])]


def test_a_range_is_two_figures_of_one_unit() -> None:
    assert [(figure.value, figure.unit) for figure in figures("2–4 working days")] == [
        ("2", "working day"),
        ("4", "working day"),
    ]
