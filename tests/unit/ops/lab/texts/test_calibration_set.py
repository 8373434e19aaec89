"""Which texts are calibrated with and which are measured by: shares, lengths, consent, the same for the same seed."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.lab.texts.calibration_set import (
    DEMO,
    KINDS,
    CalibrationSet,
    CalibrationText,
    calibration_set,
    read_texts,
    shares,
)
from shared.errors import SettingsError

TEXTS = read_texts(DEMO.read_bytes(), "demo")


def words(text: str) -> int:
    return len(text.split())


def choose(texts: list[CalibrationText], *, seed: int = 1, count: int = 560) -> CalibrationSet:
    return calibration_set(texts, words, name="demo", count=count, held_out=60, seed=seed)


def made(common: int, rare: int, sku: int, *, consented: bool = True) -> list[CalibrationText]:
    return [
        *(CalibrationText(text=f"where is parcel number {n}", consented=consented) for n in range(common)),
        *(CalibrationText(text=f"whar be me parcel {n}", consented=consented, rare=True) for n in range(rare)),
        *(CalibrationText(text=f"where is AX-{n:04}-B", consented=consented) for n in range(sku)),
    ]


@pytest.mark.parametrize(
    "text", ["AX-3391-B", "is kt2040s here", "HP-20817?", "(A9B8C7)", "the filter of my WF-20/2 or X100F2."]
)
def test_a_mixed_number_is_found_by_its_form(text: str) -> None:
    assert CalibrationText(text=text, rare=True).kind == "sku"


@pytest.mark.parametrize("text", ["150cm", "14:00", "my 2nd order", "order 20817", "60-day return", "USB3 cable"])
def test_a_measure_or_a_plain_number_is_none(text: str) -> None:
    assert CalibrationText(text=text).kind == "common"


@settings(max_examples=15)
@given(st.integers(0, 1_000_000))
def test_the_demos_set_has_its_shares_whatever_the_seed(seed: int) -> None:
    chosen = choose(TEXTS, seed=seed)
    share = shares(chosen.calibration)
    assert len(chosen.calibration) >= 500
    assert share["rare"] >= 0.3
    assert share["sku"] >= 0.1
    assert share["common"] >= 0.4
    held_out = Counter(text.kind for text in chosen.held_out)
    assert all(20 <= held_out[kind] <= 60 for kind in KINDS)


@settings(max_examples=15)
@given(st.integers(0, 1_000_000))
def test_nothing_that_is_measured_by_is_calibrated_with(seed: int) -> None:
    """Neither the text, nor another of its group: the other wordings of a question, the rest of a conversation."""
    chosen = choose(TEXTS, seed=seed)
    groups = {text.group for text in chosen.held_out}
    assert groups.isdisjoint(text.group for text in chosen.calibration)
    texts = [text.text for text in (*chosen.calibration, *chosen.held_out)]
    assert len(set(texts)) == len(texts)


@settings(max_examples=10)
@given(st.randoms(use_true_random=False), st.integers(0, 100))
def test_the_same_texts_in_another_order_give_the_same_set(random: object, seed: int) -> None:
    shuffled = list(TEXTS)
    random.shuffle(shuffled)
    assert choose(shuffled, seed=seed) == choose(TEXTS, seed=seed)
    assert choose(TEXTS, seed=seed + 1) != choose(TEXTS, seed=seed)


@pytest.mark.parametrize("count", [500, 503, 560, 999])
def test_three_texts_in_ten_are_rare_however_many_are_taken(count: int) -> None:
    chosen = choose(made(1_400, 500, 300), count=count).calibration
    assert len(chosen) == count
    assert shares(chosen)["rare"] >= 0.3


def test_nobody_is_said_to_have_consented_to_what_no_customer_wrote() -> None:
    """The demo's texts are the shop's own and generated ones: they need no consent, and claim none."""
    assert {(text.origin, text.consented) for text in TEXTS} == {("own", False)}


def test_what_a_customer_wrote_needs_consent_and_a_text_is_a_customers_unless_it_says_otherwise() -> None:
    assert not CalibrationText(text="where is it").usable
    assert not CalibrationText(text="where is it", origin="customer").usable
    assert CalibrationText(text="where is it", consented=True).usable
    assert CalibrationText(text="where is it", origin="own").usable


def test_only_what_was_consented_to_is_used() -> None:
    with pytest.raises(SettingsError, match=r'0 texts to calibrate with.*500 are needed.*"consented": true'):
        choose(made(500, 200, 200, consented=False))
    refused = [CalibrationText(text=f"secret {n}") for n in range(500)]
    chosen = choose([*made(600, 200, 200), *refused])
    assert not any("secret" in text.text for text in (*chosen.calibration, *chosen.held_out))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (made(300, 100, 100), r"demo: \d+ texts to calibrate with \(\d+ rare, \d+ with numbers\).*500 are needed"),
        (made(1_200, 0, 0), r"500 texts .*\(0 rare, 0 with numbers\); 30% must be rare"),
        (made(800, 0, 400), r"\(0 rare, .*30% must be rare and 10% have numbers: add texts with \"rare\": true"),
        (made(800, 400, 0), r"0 with numbers\); 30% must be rare and 10% have numbers"),
        (made(700, 150, 90), r"; 30% must be rare and 10% have numbers"),
        ([*made(600, 200, 0), *(CalibrationText(text=f"AX-{n:04}-B", consented=True, group="a") for n in range(200))],
         r"demo: 0 sku texts could be kept apart to measure by; 20 are needed"),
    ],
    ids=["few", "common", "no rare", "no numbers", "little of either", "one group"],
)  # fmt: skip
def test_a_poor_set_is_refused_in_one_line_with_its_numbers(texts: list[CalibrationText], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        choose(texts)
    assert "\n" not in str(refused.value)


def test_a_file_is_read_line_by_line_and_other_fields_are_passed_over() -> None:
    data = (
        b'{"text": "a", "consented": true, "rare": true, "group": "c", "id": 7}\n\n{"text": "b", "role": "assistant"}\n'
    )
    first, second = read_texts(data, "texts.jsonl")
    assert first == CalibrationText(text="a", consented=True, rare=True, group="c")
    assert (second.consented, second.role) == (False, "assistant")


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"text": 3}', b'{"consented": true}', b'{"text": "\xff"}'])
def test_a_damaged_line_is_named(line: bytes) -> None:
    with pytest.raises(SettingsError, match=r"texts\.jsonl, line 2: .*one JSON object per line") as refused:
        read_texts(b'{"text": "a"}\n' + line, "texts.jsonl")
    assert "\n" not in str(refused.value)


def test_every_length_is_taken_as_often_as_there_are_texts_of_it() -> None:
    short = [CalibrationText(text=f"parcel {n}", consented=True) for n in range(2_000)]
    longer = [CalibrationText(text=f"{n} " + "where is it " * 6, consented=True) for n in range(200)]
    chosen = choose([*short, *longer, *made(0, 300, 300)])
    lengths = Counter(words(text.text) > 16 for text in chosen.calibration if text.kind == "common")
    assert lengths[True] == pytest.approx(140, abs=25)
    assert lengths[True] + lengths[False] == 280


def test_a_text_that_occurs_twice_counts_once() -> None:
    with pytest.raises(SettingsError, match="500 are needed"):
        choose(made(200, 100, 100) * 5)
