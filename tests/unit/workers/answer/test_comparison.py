"""A shadow's answer is compared with the live one: where they differ first, what they share, what each invents."""

from hypothesis import given
from hypothesis import strategies as st

from shared.wire.outcome import Grounding, Outcome, Replaced
from shared.wire.shadow import Comparison, LiveAnswer
from workers.answer.comparison import Compared

ENTRY = Grounding(id="returns", question="May I return it?", answer="Within 30 days.")


def compare(live: str, text: str, *, live_replaced: int = 0, replaced: int = 0) -> Comparison:
    compared = Compared.of(lambda text: [len(word) for word in text.split()], "I bought it 9 days ago", [ENTRY])
    answer = LiveAnswer(request_id="r1", revision="old", output_text=live, replaced=live_replaced, output_tokens=7)
    cuts = tuple(Replaced(offset=0, length=1) for _ in range(replaced))
    own = Outcome.uncounted("completed", "stop", output_text=text).within(Outcome, replaced=cuts)
    return compared.compare(answer, own, total_ms=90.0)


def test_answers_part_at_a_place_in_characters_and_in_tokens() -> None:
    told = compare("You have 30 days. Bye", "You have 30 days, dear")
    assert (told.equal, told.live_revision, told.total_ms) == (False, "old", 90.0)
    assert (told.live_tokens, told.tokens) == (7, 0)
    assert told.same_chars == 16 / 22
    assert told.same_tokens == 4 / 5
    assert told.score == 2 * 4 / 10


def test_an_answer_that_goes_on_parts_where_the_other_ends() -> None:
    told = compare("Within 30 days.", "Within 30 days. Keep the box.")
    assert (told.equal, told.same_chars, told.same_tokens) == (False, 15 / 29, 3 / 6)


def test_unsupported_facts_are_counted_for_each_answer() -> None:
    told = compare("You have 30 days; 9 are gone.", "You have 45 days, for 10 euros.", live_replaced=1, replaced=2)
    assert (told.live_unfounded, told.unfounded) == (1, 4)


@given(st.text(), st.text())
def test_shares_are_whole_only_where_the_texts_are_equal(one: str, other: str) -> None:
    told = compare(one, other)
    assert told.equal == (one == other) == (told.same_chars == 1.0)
    assert told.same_chars == compare(other, one).same_chars
    assert not told.equal or (told.same_tokens, told.score, told.unfounded) == (1.0, 1.0, told.live_unfounded)
