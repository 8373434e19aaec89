"""What was recorded, asked again: its spacing, its deadlines, its lengths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.client.plan import Planned
from ops.lab.load.replay import planned, text_maker
from ops.operate.recording.file import BYTES, RecordedRequest, Recording
from shared.errors import SettingsError
from shared.model.tokenizer import Tokenizer
from shared.wire.messages import ResponseCreate
from tests.support.samples.recordings import HEADER, asked


def recording(*requests: RecordedRequest) -> Recording:
    return Recording("a.replay", HEADER, requests)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 1.0, 4.0]))
def test_spacing_is_kept_and_speed_divides_it(times: list[float], speed: float) -> None:
    """By arrival, in any read order; the first immediately."""
    plan = planned(recording(*map(asked, times)), speed=speed)
    expected = [(at_ms - min(times)) / 1_000 / speed for at_ms in sorted(times)]
    assert [one.at_s for one in plan] == pytest.approx(expected)


def test_deadlines_and_options_stay_as_they_were_at_any_speed() -> None:
    one = asked(5.0, deadline_ms=900, first_token_ms=200, temperature=0.5, top_p=0.9, text="wo?", stop=("x",))
    [again] = planned(recording(one), speed=8.0)
    assert again == Planned(
        at_s=0.0,
        session="b1",
        deadline_ms=900,
        request=ResponseCreate(
            event_id="replay-0",
            input="wo?",
            max_output_tokens=64,
            temperature=0.5,
            top_p=0.9,
            stop=("x",),
            deadline_ms=900,
            first_token_ms=200,
        ),
    )


@given(st.integers(0, 3_000), st.integers(0, 99))
def test_who_did_not_consent_is_replaced_by_a_text_of_that_length(tokens: int, seed: int) -> None:
    """Exact where tokens are bytes, a word a token elsewhere."""
    bytes_ = text_maker(BYTES)(tokens, seed)
    assert Tokenizer.byte_level().count(bytes_) == max(1, tokens)
    assert bytes_.strip()
    assert len(text_maker("smollm2")(tokens, seed).split()) == max(1, tokens)


def test_of_an_empty_recording_nothing_can_be_asked() -> None:
    with pytest.raises(SettingsError, match=r"a\.replay: has no requests; record while customers are asking"):
        planned(recording(), speed=1.0)
