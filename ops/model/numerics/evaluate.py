"""Measures a model in 8 bits by the float32 one: how perplexed it is, how often its likeliest next token is the same.

Agreement is teacher-forced: at each place of a text, given all before it. It is told of the texts themselves and of the
float32 model's own greedy answers to them, which is where a worker's tokens come from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from msgspec import Struct

from ops.model.numerics.forward import PlainProducts, Predictions, RoundedProducts, predict
from ops.texts.calibration_set import KINDS, CalibrationText, Kind
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.sources.checkpoint import Checkpoint
from workers.prompt.conversation import ChatTemplate


@dataclass(frozen=True, slots=True)
class Case:
    """Token ids of which those from `first` on are scored; `of_answer` where they are a model's own."""

    kind: Kind
    token_ids: tuple[int, ...]
    first: int
    of_answer: bool = False


class Score(Struct, frozen=True, kw_only=True):
    """Of one slice: tokens of texts and of answers, perplexities of the texts, agreements of both."""

    text_tokens: int
    perplexity_fp32: float
    perplexity: float
    text_agreement: float
    answer_tokens: int
    answer_agreement: float

    @property
    def perplexity_growth(self) -> float:
        """0.01 is one percent more."""
        return self.perplexity / self.perplexity_fp32 - 1


def text_case(text: CalibrationText, template: ChatTemplate) -> Case:
    """A text as the message of its role. Its first token, which follows the same header always, is not scored."""
    header = len(template.start) + len(template.begun(text.role, ""))
    return Case(text.kind, (*template.start, *template.begun(text.role, text.text), *template.end), header + 1)


def question(text: CalibrationText, template: ChatTemplate) -> tuple[int, ...]:
    """A text as a prompt to answer."""
    return (*template.start, *template.begun("user", text.text), *template.end, *template.answer)


def answer_case(kind: Kind, prompt: Sequence[int], answer: Sequence[int]) -> Case:
    return Case(kind, (*prompt, *answer), len(prompt), of_answer=True)


def score(cases: Sequence[Case], reference: Predictions, found: Predictions) -> dict[str, Score]:
    """By slice: `all` and each kind. Predictions are those of the cases' token ids, in their order."""
    scored = [_scored(case) for case in cases]
    here = np.concatenate(scored)
    of_answer = np.repeat([case.of_answer for case in cases], [len(mask) for mask in scored])
    kinds = np.repeat([KINDS.index(case.kind) for case in cases], [len(mask) for mask in scored])
    slices: Mapping[str, object] = {"all": here} | {kind: here & (kinds == number) for number, kind in enumerate(KINDS)}
    same = reference.top == found.top

    def one(mask: np.ndarray) -> Score:
        texts, answers = mask & ~of_answer, mask & of_answer
        return Score(
            text_tokens=int(texts.sum()),
            perplexity_fp32=_perplexity(reference.log_probability[texts]),
            perplexity=_perplexity(found.log_probability[texts]),
            text_agreement=_share(same[texts]),
            answer_tokens=int(answers.sum()),
            answer_agreement=_share(same[answers]),
        )

    return {name: one(np.asarray(mask)) for name, mask in slices.items()}


def _scored(case: Case) -> np.ndarray:
    """Which of a case's predictions, of its second token on, are scored."""
    return np.arange(1, len(case.token_ids)) >= case.first


def _perplexity(log_probability: np.ndarray) -> float:
    return math.exp(-float(np.mean(log_probability, dtype=np.float64))) if len(log_probability) else math.nan


def _share(same: np.ndarray) -> float:
    return float(np.mean(same)) if len(same) else math.nan


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Cases, and what the float32 model predicts at them."""

    cases: Sequence[Case]
    reference: Predictions

    @classmethod
    def of(cls, checkpoint: Checkpoint, cases: Sequence[Case]) -> Self:
        return cls(cases, predict(checkpoint, [case.token_ids for case in cases], PlainProducts()))

    def scores(self, checkpoint: Checkpoint, rounded: Mapping[str, RoundedLinear]) -> dict[str, Score]:
        """By slice: `all` and each kind."""
        return score(self.cases, self.reference, self._predicted(checkpoint, rounded))

    def _predicted(self, checkpoint: Checkpoint, rounded: Mapping[str, RoundedLinear]) -> Predictions:
        return predict(checkpoint, [case.token_ids for case in self.cases], RoundedProducts(rounded))
