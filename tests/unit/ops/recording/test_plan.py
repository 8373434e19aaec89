"""What was recorded, asked again or simulated: its spacing, its deadlines, its lengths."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.load.planned import Planned, most_at_once
from ops.recording.plan import planned, text_maker
from ops.simulate.experiment import Experiment
from ops.simulate.recorded import read_trace
from ops.traces.costs import read_costs
from ops.traces.entries import BYTES, END_BYTES, Answered, Asked
from ops.traces.recorded import traced
from ops.traces.recording import Recording
from shared.errors import SettingsError
from shared.model.tokenizer import Tokenizer
from shared.settings import Settings
from shared.wire.messages import ResponseCreate
from tests.support.fakes.simulated import least_work
from tests.support.samples.recordings import HEADER, answered, asked, written


def recording(*requests: Asked, answers: tuple[Answered, ...] = ()) -> Recording:
    return Recording("a.replay", HEADER, requests, {one.number: one for one in answers})


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 1.0, 4.0]))
def test_spacing_is_kept_and_speed_divides_it(times: list[float], speed: float) -> None:
    """By arrival, whatever the order in which they were read; the first at once."""
    plan = planned(recording(*map(asked, times)), speed=speed)
    expected = [(at_ms - min(times)) / 1_000 / speed for at_ms in sorted(times)]
    assert [one.at_s for one in plan] == pytest.approx(expected)


def test_deadlines_and_options_stay_as_they_were_at_any_speed() -> None:
    one = asked(5.0, deadline_ms=900, first_token_ms=200, temperature=0.5, top_p=0.9, text="wo?", stop=("x",))
    [again] = planned(recording(one), speed=8.0)
    assert again == Planned(
        at_s=0.0,
        session="b1",
        bucket="short",
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


def test_without_consent_two_requests_are_asked_in_different_words() -> None:
    plan = planned(recording(asked(0.0, input_tokens=60), asked(1.0, input_tokens=60)), speed=1.0)
    assert plan[0].request.input != plan[1].request.input


def test_of_an_empty_recording_nothing_can_be_asked() -> None:
    with pytest.raises(SettingsError, match=r"a\.replay: holds no request; record while somebody asks"):
        planned(recording(), speed=1.0)


def test_connections_are_counted_at_the_busiest_moment() -> None:
    """A session is there from a second before its first request to its last one's deadline."""
    times = [(0.0, "a"), (3.0, "a"), (3.5, "b"), (60.0, "c")]
    plan = planned(
        recording(*(asked(at_s * 1_000, session=name, deadline_ms=1_000) for at_s, name in times)), speed=1.0
    )
    assert most_at_once(plan) == 2


def test_a_trace_has_the_lengths_of_the_answers_and_their_means_where_there_was_none() -> None:
    requests = traced(
        recording(
            asked(0.0, input_tokens=10),
            asked(7.0, input_tokens=30, tenant="t"),
            asked(9.0, input_tokens=5, max_output_tokens=8),
            answers=(answered(0, prompt_tokens=50, output_tokens=20), answered(1, source="faq", whole=False)),
        )
    )
    assert [(one.arrival_ms, one.prompt_tokens, one.output_tokens) for one in requests] == [
        (0.0, 50, 20),
        (7.0, 70, 20),
        (9.0, 45, 8),
    ]
    assert [one.tenant for one in requests] == ["a1", "t", "a1"]


def test_a_recording_is_simulated_like_any_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.replay"
    written(path, [asked(5.0), asked(2_005.0), answered(0)])
    trace = read_trace(path, load=None, seed=0, least=least_work())
    assert [one.arrival_ms for one in trace.requests] == [0.0, 2_000.0]
    with pytest.raises(SettingsError, match=r"a\.replay: holds no answer of the model, so no lengths"):
        traced(recording(asked()))


def test_of_a_broken_off_recording_what_is_whole_is_simulated_and_that_is_told_once(tmp_path: Path) -> None:
    """Its last entry is half there; the note is one line, whatever is simulated of it."""
    path = tmp_path / "a.replay"
    data = written(path, [asked(5.0), answered(0), asked(9.0), asked(1_005.0)])
    path.write_bytes(data[: -END_BYTES - 3])
    notes: list[str] = []
    experiment = Experiment(
        traces=(str(path),),
        loads=(0.5, 1.0),
        policies=("edf", "goodput"),
        slots=4,
        seconds=1.0,
        seed=0,
        lengths="known",
        costs=read_costs("cpu"),
        settings=Settings(),
    )
    rows = experiment.run(lambda _done: None, notes.append)
    assert [row.requests for row in rows] == [2, 2, 2, 2]
    (note,) = notes
    assert note.startswith(f"{path}: the recording was broken off")
    assert note.endswith("; 2 requests are used")
    assert "\n" not in note
    written(tmp_path / "b.replay", [asked(5.0), answered(0)])
    assert read_trace(tmp_path / "b.replay", load=None, seed=0, least=least_work()).note == ""


def test_a_broken_off_recording_without_an_answer_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.replay"
    data = written(path, [asked(5.0), answered(0)])
    path.write_bytes(data[: -END_BYTES - 3])
    with pytest.raises(SettingsError, match=r"a\.replay: holds no answer .*; record while a worker runs"):
        read_trace(path, load=None, seed=0, least=least_work())
