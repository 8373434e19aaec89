"""Equal facts compare equal in any notation, and a text without a fact yields none."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.facts import Known, facts_in
from shared.faq.entries import LANGUAGES, PACKAGED_PATH, read_entries

DAY = 86_400
ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
ONES += ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
HAN = "零一二三四五六七八九"
DAYS = ["{} days", "{}-day", "{} calendar days", "{}天", "{} 天", "{}多天", "**{}** days"]
EUROS = ["€{}", "{} €", "EUR {}", "{} euros", "{} 欧元", "{}欧元"]


def values(text: str) -> list[tuple[str, str]]:
    return [
        (fact.kind, f"{fact.value:f}" if isinstance(fact.value, Decimal) else fact.value) for fact in facts_in(text)
    ]


def in_words(number: int) -> str:
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10 - 2] + (f"-{ONES[number % 10]}" if number % 10 else "")
    if number < 1_000:
        return f"{ONES[number // 100]} hundred" + (f" and {in_words(number % 100)}" if number % 100 else "")
    return f"{in_words(number // 1_000)} thousand" + (f" {in_words(number % 1_000)}" if number % 1_000 else "")


def in_han(number: int) -> str:
    said, gap = "", False
    for power, name in ((1_000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // power % 10
        if digit:
            said += ("零" if gap and said else "") + HAN[digit] + name
            gap = False
        else:
            gap = True
    return said.removeprefix("一") if 10 <= number < 20 else said


def wide(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if char.isascii() and char.isalnum() else char for char in text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("€49.90, 49,90 €, EUR 49.90 and 49.90 euros", [("eur", "49.90")] * 4),
        ("$5, 5 dollars", [("usd", "5")] * 2),
        ("50元 ¥50 五十元 50 yuan", [("cny", "50")] * 4),
        ("€1,500 or 1.500,00 €", [("eur", "1500"), ("eur", "1500.00")]),
        ("€10 to 250", [("eur", "10"), ("eur", "250")]),
        ("90 至 1500 欧元", [("eur", "90"), ("eur", "1500")]),
        ("10 %, 10%, ten percent, 百分之十, 九折", [("percent", "10")] * 5),
        ("14 days, fourteen days, two weeks, 14天, 十四天, 两周", [("duration", str(14 * DAY))] * 6),
        ("24 h, 24 hours, a 24-hour wait, one day, within a day", [("duration", str(DAY))] * 5),
        ("3–5 working days", [("working days", "3"), ("working days", "5")]),
        ("between 3 and 5 business days", [("working days", "3"), ("working days", "5")]),
        ("3至5个工作日", [("working days", "3"), ("working days", "5")]),
        ("三四天", [("duration", str(3 * DAY)), ("duration", str(4 * DAY))]),
        ("up to 3 more working days", [("working days", "3")]),
        ("12 months, one year, 1 年", [("months", "12")] * 3),
        ("half an hour, 半小时, 30 minutes", [("duration", "1800.0")] * 2 + [("duration", "1800")]),
        ("30 nights", [("nights", "30")]),
        ("14:00, 2 pm, 2 p.m., 下午2点", [("clock", "840")] * 4),
        ("Monday to Friday, 周一至周五", [("weekday", "1"), ("weekday", "5")] * 2),
        ("12 May, May 12th, 2026-05-12, 5月12日", [("date", "05-12")] * 3 + [("number", "2026"), ("date", "05-12")]),
        ("in May", [("month", "5")]),
        ("AX-3391-B, ax3391b, AX 3391 B", [("code", "ax3391b")] * 3),
        ("see https://www.Shop.com/a?b=1.", [("link", "shop.com/a?b=1")]),
        ("write to help@harborandpine.example.", [("mail", "help@harborandpine.example")]),
        ("call +49 40 123456", [("digits", "4940123456")]),
        ("at 30 °C or 30 degrees or 30 度", [("°C", "30")] * 3),
        ("120 x 60 cm", [("mm", "1200"), ("mm", "600")]),
        ("48 × 30 × 20 厘米", [("mm", "480"), ("mm", "300"), ("mm", "200")]),
        ("5 kg is 5000 g", [("g", "5000")] * 2),
        ("the 16-digit number, 3 instalments, 9000 多个网点", [("number", "16"), ("number", "3"), ("number", "9000")]),
        ("在三家门店，两次", [("number", "3"), ("number", "2")]),
        ("12 Baker Street", [("number", "12"), ("address", "12bakerstreet")]),
        ("2.5万", [("number", "25000.0")]),
        ("open 24/7", [("code", "24/7")]),
        ("٣٠ days, ３０ days", [("duration", str(30 * DAY))] * 2),
    ],
)
def test_facts_are_found_and_normalised(text: str, expected: list[tuple[str, str]]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1. Open your account.\n2. Click it.\n 3) Done.",
        "one of them, the one that no one took, once, the first, the 2nd, a second",
        "Step 2: you may march on in a minute; a few days, several weeks",
        "一下 一般 第一次 下一个工作日 同一天 统一 唯一 一些 十分 千万 万一 零件 一点 每周一次",
        "USB-C, QR, Harbor & Pine",
        "",
    ],
)
def test_ordinals_line_numbers_and_words_are_not_facts(text: str) -> None:
    assert facts_in(text) == ()


@given(st.integers(1, 9_999), st.sampled_from([(DAYS, "duration"), (EUROS, "eur")]), st.data())
def test_a_number_is_the_same_in_digits_words_and_wide_forms(
    number: int, unit: tuple[list[str], str], data: st.DataObject
) -> None:
    forms, kind = unit
    template = data.draw(st.sampled_from(forms))
    chinese = not template.isascii() and "€" not in template
    written = data.draw(st.sampled_from([str(number), f"{number:,}", wide(str(number))]))
    if data.draw(st.booleans()) and "€{" not in template and "EUR {" not in template:
        written = in_han(number) if chinese else in_words(number)
    if "多" in template and not written.isdecimal():
        written = str(number)
    (fact,) = facts_in(template.format(written))
    assert (fact.kind, fact.figures) == (kind, (number,))
    assert fact.value == number * (DAY if kind == "duration" else 1)


@given(st.integers(0, 99_999), st.integers(0, 99_999), st.sampled_from([*DAYS, *EUROS, "{} items", "{} %", "{} 件"]))
def test_any_altered_number_is_caught(true: int, said: int, template: str) -> None:
    known = Known([f"It is {template.format(true)}."])
    assert bool(known.foreign(f"Yes, {template.format(said)}!")) == (true != said)


@given(
    st.text(max_size=60)
    | st.text("ab1 0٣𝟗²-–.,:/@'()+第一十百万二两半个点月日年号天周€%xXAfmayofto\n\u00a0", max_size=60)
)
def test_any_text_can_be_parsed_and_supports_itself(text: str) -> None:
    assert all(0 <= fact.start < fact.stop <= len(text) for fact in facts_in(text))
    assert Known([text]).foreign(text) == []


@given(st.text("1203 –.,€%days hoursAXkg\n", max_size=40))
def test_case_and_width_change_no_fact(text: str) -> None:
    plain = facts_in(text)
    assert facts_in(wide(text)) == plain
    assert facts_in(text.upper()) == facts_in(text.lower())


@given(st.text("1203 -.,€%days hoursAXkg\n", max_size=40))
def test_a_facts_position_is_the_one_reported(text: str) -> None:
    stop = 0
    for fact in facts_in(text):
        assert stop <= fact.start < fact.stop <= len(text)
        stop = fact.start


@pytest.mark.parametrize(
    ("said", "known", "borne_out"),
    [
        ("30 days", "30 euros and 14 days", False),
        ("14 days", "14 working days", False),
        ("two weeks", "14天", True),
        ("5 items", "5 working days", True),
        ("We are open on Wednesday", "Monday to Friday", True),
        ("We are open on Sunday", "Monday to Friday", False),
        ("We open at 8", "8:00–20:00", True),
        ("We open at 9", "8:00–20:00", False),
        ("8 o'clock", "open until 20:00", True),
        ("2026", "12 May", False),
        ("in May", "12 May", True),
        ("AX-3391", "the jacket AX-3391-B", True),
        ("AX-3391-C", "the jacket AX-3391-B", False),
        ("AX-3392", "the jacket AX-3391-B", False),
        ("harborandpine.example", "help@harborandpine.example", True),
        ("www.harborandpine.com", "help@harborandpine.example", False),
        ("info@harborandpine.example", "help@harborandpine.example", False),
        ("$12.90", "€12.90", False),
        ("€12,90", "€12.90", True),
        ("50%", "up to 50 % of the price", True),
        ("20 °C", "30 °C for 20 minutes", False),
    ],
)
def test_a_number_needs_its_own_unit(said: str, known: str, borne_out: bool) -> None:
    assert (Known([known]).foreign(said) == []) == borne_out


def test_added_texts_support_facts_too() -> None:
    known = Known(["14 days"])
    assert known.foreign("20 days")
    known.add(["after 20 days?"])
    assert not known.foreign("20 days")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_packaged_answer_is_supported_by_its_own_entry(language: str) -> None:
    for entry in read_entries(PACKAGED_PATH):
        if entry.language == language:
            assert Known([entry.answer]).foreign(entry.answer) == [], entry.id


def test_a_packaged_answer_has_the_same_facts_in_both_languages() -> None:
    """All but three of ninety: "two-person" and 双人, "monthly instalments" and 3 个月, "both" and 两笔."""
    answers: dict[str, dict[str, str]] = {}
    for entry in read_entries(PACKAGED_PATH):
        answers.setdefault(entry.id, {})[entry.language] = entry.answer
    differing = {
        entry_id
        for entry_id, both in answers.items()
        if Known([both["en"]]).foreign(both["zh"]) or Known([both["zh"]]).foreign(both["en"])
    }
    assert differing <= {"delivery-bulky", "payment-instalments", "payment-charged-twice"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "nasty", ["a", "a-", "a1-", "a.", "a@", "1x", "+0", "one hundred and ", "half a ", " ", "一", "百分之", "\n1. "]
)
def test_a_long_adversarial_text_is_parsed_in_linear_time(nasty: str) -> None:
    """Quadratic parsing of 100 kB takes minutes. The fact at its end is still found."""
    assert values(nasty * (100_000 // len(nasty)) + "\nIt takes 14 days.")[-1] == ("duration", str(14 * DAY))
