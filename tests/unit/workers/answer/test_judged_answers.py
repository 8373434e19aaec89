"""Replay the guard over 450 answers of models, whose sentences were judged by reading them.

`judged_answers.jsonl`: 300 answers of the demo's model (`shop`) and 150 of the same model without its adapter (`base`),
greedy, by the native engine, to questions of ops/evaluation/sets; 326 of them ask for a yes or no. Each has the entries
of its prompt and a verdict on each sentence:

    true        the entries say it
    nothing     it claims nothing: an apology, an offer
    figure      a figure that no entry has
    name        a name, place or certificate that no entry has
    yes_no      a "Yes" or "No" that no entry bears out
    misplaced   an entry's figure, said of something else
    claim       any other claim that no entry bears out
"""

from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest

from shared.faq.speech.polarity import opening_of
from shared.faq.speech.sentences import sentences
from shared.wire.outcome import Grounding
from workers.answer.guard import FactGuard

ANSWERS = Path(__file__).with_name("judged_answers.jsonl")


class Judged(msgspec.Struct, frozen=True):
    """An answer. `whole`: the model ended it. `judged`: each sentence's verdicts, joined by "+"."""

    model: str
    shop: str
    id: str
    question: str
    grounding: tuple[Grounding, ...]
    text: str
    whole: bool
    judged: tuple[str, ...]


@cache
def answers() -> tuple[Judged, ...]:
    return tuple(msgspec.json.Decoder(Judged).decode_lines(ANSWERS.read_bytes()))


def shown_of(answer: Judged) -> str:
    """Return the model's part of what the customer sees."""
    guard = FactGuard(answer.grounding, (answer.question,), ("You answer customers of a shop.",))
    text = guard.feed(answer.text) + guard.finish(whole=answer.whole)
    for each in reversed(guard.replaced):
        text = f"{text[: each.offset]}\n{text[each.offset + each.length :]}"
    return text


@cache
def counts() -> dict[str, Counter[tuple[str, str]]]:
    """Return how many different sentences of each model and verdict there are, and how many are shown."""
    found = {"all": Counter[tuple[str, str]](), "shown": Counter[tuple[str, str]]()}
    for answer in answers():
        shown = shown_of(answer)
        verdicts = dict(zip(map(str.strip, sentences(answer.text)), answer.judged, strict=True))
        for sentence, verdict in verdicts.items():
            opening = opening_of(sentence)
            rest = sentence[opening.stop :] if opening else ""
            for kind in verdict.split("+"):
                found["all"][answer.model, kind] += 1
                bare = kind != "yes_no" and bool(rest) and rest[0].upper() + rest[1:] in shown
                found["shown"][answer.model, kind] += sentence in shown or bare
    return found


def test_each_sentence_has_a_verdict() -> None:
    assert Counter(answer.model for answer in answers()) == {"shop": 300, "base": 150}
    for answer in answers():
        assert len(sentences(answer.text)) == len(answer.judged), answer.id


@pytest.mark.parametrize(("kind", "judged"), [("figure", 41), ("name", 11), ("yes_no", 30)])
def test_no_invented_figure_name_or_yes_is_shown(kind: str, judged: int) -> None:
    found = counts()
    assert sum(found["all"][model, kind] for model in ("shop", "base")) == judged
    assert sum(found["shown"][model, kind] for model in ("shop", "base")) == 0


@pytest.mark.parametrize(
    ("model", "kind", "most"), [("shop", "claim", 1), ("base", "claim", 9), ("base", "misplaced", 3)]
)
def test_few_other_false_claims_are_shown(model: str, kind: str, most: int) -> None:
    assert counts()["all"][model, kind] > most
    assert counts()["shown"][model, kind] <= most


@pytest.mark.parametrize(("model", "least"), [("shop", 0.99), ("base", 0.55)])
def test_true_sentences_are_shown(model: str, least: float) -> None:
    """The model without its adapter says true things in other words, of which the guard keeps fewer."""
    found = counts()
    assert found["shown"][model, "true"] >= least * found["all"][model, "true"]
