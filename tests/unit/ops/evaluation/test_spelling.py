"""Facts are found in any correct notation, and only there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.evaluation.judging.spelling import normal, says


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("fourteen days", "14 days"),
        ("Thirty-six months", "36 month"),
        ("a hundred and twenty kg", "120 kilos"),
        ("€4.90", "4.90 euros"),
        ("EUR 4.90", "4.90 欧元"),
        ("1,500 €", "€1500"),
        ("2–4 working days", "2 to 4 business days"),
        ("between 2 and 4 working days", "between 2-4 working days"),
        ("a 30-day period", "a 30 day period"),
        ("8 am to 8 pm", "8:00–20:00"),
        ("2 p.m.", "14:00"),
        ("下午两点", "14:00"),
        ("晚上 8 点半", "20:30"),
        ("十四天", "14 天"),
        ("两个工作日", "2 个工作日"),
        ("百分之五", "5 %"),
        ("二十四个月", "24 个月"),
        ("８０ ％", "80%"),
        ("five percent", "5 %"),
        ("30 °C", "30 degrees Celsius"),
        ("You’re", "you're"),
    ],
)
def test_two_ways_to_write_the_same_are_the_same(one: str, other: str) -> None:
    assert normal(one) == normal(other)


@pytest.mark.parametrize(
    ("answer", "fact", "held"),
    [
        ("You have 30 days.", "30 days", True),
        ("You have 130 days.", "30 days", False),
        ("It takes 5–10 working days.", "10 working days", False),
        ("We are here until 8:00–20:00.", "20:00", True),
        ("It costs €14.90.", "€4.90", False),
        ("It costs 4.905 euros.", "4.90 €", False),
        ("Take size L.", "L", True),
        ("Take a large one.", "L", False),
        ("胸围适合 L 码。", "L 码", True),
        ("三十天内可以退货", "30 天", True),
        ("We stand by our word.", "30 days", False),
    ],
)
def test_a_fact_is_held_whole_or_not_at_all(answer: str, fact: str, held: bool) -> None:
    assert says(normal(answer), normal(fact)) is held


@given(st.integers(0, 99_999), st.integers(0, 99_999))
def test_a_number_is_found_where_it_is_that_number_alone(said: int, asked: int) -> None:
    assert says(normal(f"It takes {said} days."), normal(f"{asked} days")) == (said == asked)


@given(st.integers(1, 9), st.integers(0, 9))
def test_chinese_numbers_are_the_same_as_digits(tens: int, ones: int) -> None:
    digits = "零一二三四五六七八九"
    spelled = ("" if tens == 1 else digits[tens]) + "十" + (digits[ones] if ones else "")
    assert normal(f"{spelled}天") == normal(f"{10 * tens + ones} 天")


@given(st.text())
def test_any_text_has_a_spelling_without_doubled_spaces(text: str) -> None:
    assert "  " not in normal(text)
