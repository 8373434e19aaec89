"""Propose tokens for decoding rows, and learn how many are accepted, by source. Pure, with one owner.

A row follows one earlier text, token by token, for as long as its answer repeats that text; then another one is looked
up. The sources, the first one that has a match: the shop's text in the prompt, the conversation (the prompt and the
answer so far), and recent answers to the same tenant if those are shared.
"""

from collections import OrderedDict, deque
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from msgspec import structs

from shared.wire.session_key import SessionKey
from workers.engine import DecodeRow
from workers.schedule.policy import Costs
from workers.schedule.sequence import Sequence
from workers.schedule.speculation.lookup import LONGEST_MATCH, Text, longest_match
from workers.schedule.speculation.pricing import LONGEST_PROPOSAL, Offer, lengths_worth, may_pay
from workers.schedule.work import Work

Source = Literal["faq", "conversation", "tenant"]
SOURCES: Final[tuple[Source, ...]] = get_args(Source)

_PRIOR_RATE: Final = 0.7
_KEPT: Final = 0.98  # an average over about 50 tokens
_MOST_TENANTS: Final = 64
_MOST_ANSWERS: Final = 16


@dataclass(slots=True)
class Acceptance:
    """How often a source's next token is the sampled one, of late."""

    rate: float = _PRIOR_RATE

    def observe(self, *, accepted: bool) -> None:
        self.rate += (1 - _KEPT) * (accepted - self.rate)


@dataclass(slots=True)
class _Row:
    """What a sequence's tokens are looked up in, and the text it follows: the next token of `text` is at `at`."""

    shops: list[Text]
    own: Text
    source: Source = "faq"
    text: Text | None = None
    at: int = 0


@dataclass(slots=True)
class Speculation:
    """The proposals of a scheduler's rows.

    Attributes:
        costs: the costs of steps.
        stop_token_ids: are never proposed, since sampling one after an accepted token costs nothing.
        shares_answers: answers are looked up for other customers of their tenant.
    """

    costs: Costs
    stop_token_ids: Collection[int]
    shares_answers: bool = False
    acceptance: dict[Source, Acceptance] = field(default_factory=lambda: {each: Acceptance() for each in SOURCES})
    _rows: dict[Sequence, _Row] = field(default_factory=dict, init=False)
    _answers: "OrderedDict[str, deque[tuple[SessionKey, Text]]]" = field(default_factory=OrderedDict, init=False)

    def propose(
        self, rows: tuple[DecodeRow, ...], sequences: Tokens[Sequence]
    ) -> tuple[tuple[DecodeRow, ...], tuple[Source, ...]]:
        """Return the decode rows of a step without prompts, with the proposed tokens that are worth verifying.

        Returns:
            The rows; and each one's source, or nothing if no row has proposed tokens.
        """
        work = Work.of_rows(rows)
        if not rows or not may_pay(work, self.costs):
            return rows, ()
        proposals = [self._next(sequence) for sequence in sequences]
        if not any(tokens for _, tokens in proposals):
            return rows, ()
        offers = [
            Offer(self.acceptance[source].rate, len(tokens), row.past)
            for row, (source, tokens) in zip(rows, proposals, strict=True)
        ]
        counts = lengths_worth(offers, work, self.costs)
        if not any(counts):
            return rows, ()
        proposing = [
            structs.replace(row, proposed=tuple(tokens[:count])) if count else row
            for row, (_, tokens), count in zip(rows, proposals, counts, strict=True)
        ]
        return tuple(proposing), tuple([source for source, _ in proposals])

    def appended(self, sequence: Sequence, token_id: int) -> None:
        """Record a sequence's next token."""
        row = self._rows.get(sequence)
        if row is None or row.text is None:
            return
        accepted = row.text.ids[row.at] == token_id
        self.acceptance[row.source].observe(accepted=accepted)
        row.at += 1
        if not accepted or row.at >= len(row.text.ids):
            row.text = None

    def ended(self, sequence: Sequence, *, keep: bool) -> None:
        """Record that a sequence has left its slot. `keep`: its answer may be looked up for the same tenant."""
        self._rows.pop(sequence, None)
        if not (keep and self.shares_answers and sequence.output_ids) or sequence.erased:
            return
        tenant = sequence.session.tenant
        answers = self._answers.setdefault(tenant, deque(maxlen=_MOST_ANSWERS))
        answers.append((sequence.session, Text(sequence.output_ids)))
        self._answers.move_to_end(tenant)
        if len(self._answers) > _MOST_TENANTS:
            self._answers.popitem(last=False)

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation's answers."""
        for answers in self._answers.values():
            for each in [each for each in answers if each[0] == session]:
                answers.remove(each)

    def _next(self, sequence: Sequence) -> tuple[Source, list[int]]:
        """Return the tokens that may follow, and their source."""
        row = self._rows.get(sequence)
        if row is None:
            ids = sequence.prompt_ids
            shops = [Text(ids[start:stop]) for start, stop in sequence.shop_spans]
            row = self._rows[sequence] = _Row(shops, Text(ids))
        row.own.extend(sequence.output_ids[len(row.own.ids) - len(sequence.prompt_ids) :])
        if row.text is None:
            self._look_up(row, sequence)
        if row.text is None:
            return row.source, []
        most = min(LONGEST_PROPOSAL, sequence.max_output_tokens - len(sequence.output_ids) - 1)
        tokens = row.text.ids[row.at : row.at + most]
        ends = [place for place, token_id in enumerate(tokens) if token_id in self.stop_token_ids]
        return row.source, tokens[: ends[0]] if ends else tokens

    def _look_up(self, row: _Row, sequence: Sequence) -> None:
        tail = row.own.ids[-LONGEST_MATCH:]
        recent = [text for _, text in self._answers.get(sequence.session.tenant, ())]
        for source, texts in zip(SOURCES, (row.shops, [row.own], recent), strict=True):
            match = longest_match(texts, tail)
            if match is not None and match.at < len(match.text.ids):
                row.source, row.text, row.at = source, match.text, match.at
                return
