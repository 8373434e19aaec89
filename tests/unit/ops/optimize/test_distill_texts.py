"""What the demo's student is shown: made again from the repository, with nothing of what it is judged by."""

import random
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.evaluation.judging.split import split_of
from ops.model.prepare import DEMO_ADAPTER
from ops.optimize.distill.batches import learning_rate, plan_batches
from ops.optimize.distill.examples import Encoder, Example, digest, lessons_of, read_examples
from ops.optimize.distill.facts import Facts
from ops.optimize.distill.loss_plot import loss_plot, running_mean
from ops.optimize.distill.shop_texts import UNKNOWN, plain, shop_examples
from ops.optimize.distill.steps import Step
from ops.optimize.distill.topics import read_topics
from ops.optimize.distill.wordings import typed
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.model.folder import CHATML
from shared.model.tokenizer import Tokenizer
from shared.settings import SYSTEM_PROMPT
from workers.graph.sources.adapter import MANIFEST, AdapterManifest
from workers.loading import chat_template

SHOWN = shop_examples(count=1_500, seed=1)
HELD_OUT = [entry for entry in read_entries(PACKAGED_PATH) if split_of(entry.id) == "held_out"]
_SHINGLE = 8


def shingles(text: str) -> set[tuple[str, ...]]:
    words = plain(text).split()
    return {tuple(words[at : at + _SHINGLE]) for at in range(len(words) - _SHINGLE + 1)}


def test_the_same_seed_makes_the_same_texts_and_another_does_not() -> None:
    assert shop_examples(count=50, seed=1) == SHOWN[:50]
    assert shop_examples(count=50, seed=2) != SHOWN[:50]


def test_the_packaged_adapter_was_made_from_these_texts() -> None:
    """Its manifest tells their sha256: whoever changes the texts makes the adapter anew."""
    manifest = msgspec.json.decode((DEMO_ADAPTER / MANIFEST).read_bytes(), type=AdapterManifest)
    count = int(manifest.made_by["examples"])
    assert digest(shop_examples(count=count, seed=manifest.seed)) == manifest.data_sha256


def test_nothing_of_a_held_out_entry_is_shown() -> None:
    """No entry of that half, no question in its words, no eight words of its answers in a row that the dev half's have
    not too."""
    held_out_ids = {entry.id for entry in HELD_OUT}
    wordings = {plain(text) for entry in HELD_OUT for text in (entry.question, *entry.alternatives)}
    dev = {
        shingle for entry in read_entries(PACKAGED_PATH) if entry not in HELD_OUT for shingle in shingles(entry.answer)
    }
    answers = {shingle for entry in HELD_OUT for shingle in shingles(entry.answer)} - dev
    for example in SHOWN:
        entries = (*example.grounding, *(entry for said in example.turns for entry in said.grounding))
        assert held_out_ids.isdisjoint(entry.id for entry in entries)
        asked = {example.question, *(said.user for said in example.turns), *(entry.question for entry in entries)}
        assert wordings.isdisjoint(map(plain, asked))
        assert answers.isdisjoint(shingles(example.answer or "")), example.answer


def test_an_answer_is_of_its_entries_in_their_own_words() -> None:
    """Or one of the few that need none; every figure stands in the prompt."""
    told = 0
    for example in SHOWN:
        before = "\n".join(
            [entry.answer for entry in example.grounding]
            + [entry.answer for said in example.turns for entry in said.grounding]
        )
        answer = example.answer or ""
        told += answer != UNKNOWN
        assert set(re.findall(r"\d+", answer)) <= set(re.findall(r"\d+", before))
    assert told > 0.9 * len(SHOWN)


def test_what_customers_do_is_all_there() -> None:
    """Follow-ups, two questions in one, another entry beside the right one and before it, what nobody knows."""
    follow_ups = [example for example in SHOWN if example.turns]
    beside = [example for example in SHOWN if len(example.grounding) == 2]
    right_second = [example for example in beside if example.answer == example.grounding[1].answer]
    both = [example for example in beside if all(entry.answer in (example.answer or "") for entry in example.grounding)]
    unknown = [example for example in SHOWN if example.answer == UNKNOWN]
    for found in (follow_ups, right_second, both, unknown):
        assert len(found) > 0.02 * len(SHOWN)


def test_every_topic_can_be_filled() -> None:
    for topic in read_topics():
        assert topic.answers
        assert topic.asks
        facts = Facts(random.Random(1))
        lines = (topic.question, *topic.answers, *topic.asks, *topic.follow_ups, *topic.premises)
        assert not any("{" in facts.fill(line) for line in lines)


def test_a_fact_is_the_same_wherever_an_entry_tells_it_and_another_where_it_is_denied() -> None:
    facts = Facts(random.Random(2))
    assert facts.fill("{days} and {days}").split(" and ")[0] == facts.fill("{days}")
    assert facts.fill("{days}") != facts.fill("{days2}")
    assert facts.fill("{not days}") not in {facts.fill("{days}"), facts.fill("{days2}")}


@given(st.integers(), st.sampled_from(["is the AX-3391-B at 12:30 for €3.90 all right?", "Order 4417 within 30 days"]))
def test_slips_leave_every_figure_as_it_was(seed: int, text: str) -> None:
    found = typed(text, random.Random(seed))
    for word in (word for word in text.split() if any(map(str.isdigit, word))):
        assert word.rstrip("?.") in found


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=80), st.integers(16, 900), st.integers(1, 3), st.integers(0, 9)
)
def test_every_example_is_in_one_batch_of_each_epoch_and_no_batch_is_too_large(
    lengths: list[int], tokens: int, epochs: int, seed: int
) -> None:
    batches = plan_batches(lengths, tokens=tokens, epochs=epochs, seed=seed)
    assert sorted(index for batch in batches for index in batch) == sorted(list(range(len(lengths))) * epochs)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= tokens
    assert batches == plan_batches(lengths, tokens=tokens, epochs=epochs, seed=seed)


@given(st.integers(1, 400), st.integers(1, 50))
def test_the_learning_rate_rises_to_its_peak_and_falls_to_a_tenth(steps: int, warmup: int) -> None:
    rates = [learning_rate(step, steps=steps, peak=1.0, warmup=warmup) for step in range(steps)]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert all(0 < rate <= 1 for rate in rates)
    if steps > warmup + 1:
        assert rates[-1] == pytest.approx(0.1)


def test_a_lesson_is_the_worker_s_prompt_and_the_answer_with_its_end() -> None:
    tokenizer = Tokenizer.byte_level()
    template = chat_template(tokenizer, CHATML)
    example = SHOWN[0]
    (lesson,) = lessons_of(Encoder(template), [example], max_tokens=4_096)
    assert tokenizer.decode_bytes(lesson.ids[lesson.start :]).decode() == example.answer
    assert lesson.ids[-1] == tokenizer.special_id("<|im_end|>")
    assert SYSTEM_PROMPT in tokenizer.decode_bytes(lesson.ids[: lesson.start]).decode()
    with pytest.raises(SettingsError, match="--max-length 40: no example fits"):
        lessons_of(Encoder(template), [example], max_tokens=40)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no example"),
        (b'{"question": "a", "answer": "b"}\n{"question": 7}', "line 2: "),
        (b'{"question": "a"}', "line 1: no answer; write one, or give a --teacher"),
        (b'{"question": "a", "answr": "b"}', "line 1: .*answr"),
        (b"\xff\xfe", "line 1: "),
    ],
)
def test_a_bad_file_of_examples_is_refused_by_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(SettingsError, match=message) as refused:
        read_examples(tmp_path / "t.jsonl", answered=True)
    assert "\n" not in str(refused.value)


def test_a_file_of_examples_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"t\.jsonl: No such file"):
        read_examples(tmp_path / "t.jsonl", answered=True)


def test_examples_without_an_answer_are_read_for_a_teacher(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'{"question": "a"}\n\n{"question": "b", "answer": "c"}\n')
    assert read_examples(tmp_path / "t.jsonl", answered=False) == [
        Example(question="a"),
        Example(question="b", answer="c"),
    ]


def test_the_plot_shows_each_step_and_the_running_mean() -> None:
    steps = [
        Step(step=at, loss=2.0 / (at + 1), agreement=0.5, learning_rate=1e-3, gradient_norm=1.0, tokens=9)
        for at in range(6)
    ]
    drawn = loss_plot(steps, "kl")
    assert "KL to the teacher" in drawn
    assert drawn.count('<path class="line') == 2
    assert running_mean([3.0, 3.0, 3.0]) == pytest.approx([3.0, 3.0, 3.0])
