"""A calibration set from a recording: consented words alone, held to the same demands as any other set."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.optimize.recorded_texts import recorded_texts
from ops.texts.calibration_set import CalibrationText, calibration_set
from ops.traces.recording import Recording
from shared.errors import SettingsError
from tests.support.samples.recordings import HEADER, asked

SYLLABLES = ("ba", "cro", "dun", "fle", "gri", "hob", "jat", "kem", "lug", "mip")


def odd(number: int) -> str:
    """A word that nobody else uses."""
    return "".join(SYLLABLES[int(digit)] for digit in f"{number:04}")


def recording(texts: list[str | None], *, a_session: int = 1) -> Recording:
    requests = [asked(float(n), text=text, session=f"s{n // a_session}") for n, text in enumerate(texts)]
    return Recording("a.replay", HEADER, tuple(requests), {})


def shop(common: int, rare: int, sku: int) -> list[str | None]:
    return [
        *(f"where is the parcel of my order {n} from last week" for n in range(common)),
        *(f"{odd(3 * n)} {odd(3 * n + 1)} my parcel {odd(3 * n + 2)}" for n in range(rare)),
        *(f"is the jacket AX-{n:04}-B in stock" for n in range(sku)),
    ]


def chosen(texts: list[CalibrationText], seed: int = 1) -> list[str]:
    made = calibration_set(
        texts, lambda text: len(text.split()), name="a.replay", count=560, held_out=40, seed=seed
    )  # fmt: skip
    return [text.text for text in (*made.calibration, *made.held_out)]


def test_only_consented_words_are_there() -> None:
    texts = recorded_texts(recording(["one", None, "two"]))
    assert [(text.text, text.consented, text.role) for text in texts] == [("one", True, "user"), ("two", True, "user")]


def test_what_only_one_conversation_says_is_rare_and_numbers_make_nothing_so() -> None:
    kinds = Counter(text.kind for text in recorded_texts(recording(shop(300, 100, 100))))
    assert kinds == {"common": 300, "rare": 100, "sku": 100}


def test_who_repeats_an_odd_phrasing_alone_is_still_rare_and_what_two_say_is_not() -> None:
    said = "krumbobble flixen parcel snorfle"
    assert [text.rare for text in recorded_texts(recording([said, said, "parcel"], a_session=2))] == [True, True, False]
    assert [text.rare for text in recorded_texts(recording([said, said]))] == [False, False]


def test_two_words_are_too_few_to_be_called_rare() -> None:
    assert [text.rare for text in recorded_texts(recording(["krumbobble flixen"]))] == [False]


@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_same_recording_gives_the_same_set_whatever_the_order(random: object) -> None:
    texts = recorded_texts(recording(shop(500, 200, 200)))
    shuffled = list(texts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert chosen(shuffled) == chosen(texts)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (shop(100, 50, 50), r"a\.replay: \d+ texts to calibrate with .* 500 are needed"),
        (shop(1_200, 0, 0), r"a\.replay: 500 texts .* 30% must be rare"),
        ([None] * 900, r"a\.replay: 0 texts to calibrate with .*\"consented\": true"),
    ],
    ids=["few", "no rare", "nobody consented"],
)
def test_a_recording_that_will_not_do_is_refused_in_one_line(texts: list[str | None], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        chosen(recorded_texts(recording(texts)))
    assert "\n" not in str(refused.value)
