"""Nothing is shown that the FAQ, the question or the conversation does not bear out; all else is shown as it came."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shared.facts import Known
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.faq.speech.sentences import LOOKAHEAD_CHARS, MAX_CHARS, next_cut, sentences
from shared.wire.outcome import Grounding, Replaced
from workers.answer.guard import FactGuard

RETURNS = Grounding(
    id="return-period",
    question="How long can I return items?",
    answer='You can return items within 30 days of delivery. The last day is shown next to each item in "My orders".',
)
RETURNED = "You can return items within 30 days of delivery."
COST = Grounding(
    id="delivery-cost",
    question="How much is delivery?",
    answer="Standard delivery costs €4.90 and is free for orders from €60. Express delivery costs €12.90.",
)
ZH = Grounding(id="delivery-time", question="多久送达？", answer="标准配送 2–4 个工作日送达。费用为 4.90 欧元。")
PIECES = st.sampled_from(
    ["You can return ", "items ", "within ", "30 days", "90 days", "30 ", "days", "euros", "€4.90", "€5", "five ", "3",
     "0", ".", ". ", "! ", "? ", "\n", "\n1. ", " 2) ", ", ", "Yes", "No. ", "e.g. ", "AX-3391-B", "shop.com", " ",
     "The last day. ", "Express delivery costs €12.90. ", "标准配送", "三天", "30 天", "。", "，", "一", "”",
     "and so on and ", "**", "x"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=60).map("".join)
GROUNDINGS = st.lists(st.sampled_from([RETURNS, COST, ZH]), max_size=3, unique=True)


def guarded(
    text: str, *grounding: Grounding, heard: tuple[str, ...] = (), whole: bool = True, shops: tuple[str, ...] = ()
) -> FactGuard:
    """A guard that got the text a character at a time; `said` is its output."""
    guard = FactGuard(grounding, heard, shops)
    shown = "".join(map(guard.feed, text)) + guard.finish(whole=whole)
    assert shown == guard._shown
    return guard


def said(text: str, *grounding: Grounding, **known: Any) -> str:
    return guarded(text, *grounding, **known)._shown


@given(TEXTS, GROUNDINGS, st.lists(st.integers(1, 30), min_size=1, max_size=20), st.booleans())
def test_the_shown_text_does_not_depend_on_the_pieces(
    text: str, grounding: list[Grounding], sizes: list[int], whole: bool
) -> None:
    expected = guarded(text, *grounding, whole=whole)
    guard, shown, at = FactGuard(grounding, ()), "", 0
    for number in range(len(text)):
        size = sizes[number % len(sizes)]
        shown += guard.feed(text[at : at + size])
        at += size
    shown += guard.finish(whole=whole)
    assert (shown, guard.replaced, guard.cut) == (expected._shown, expected.replaced, expected.cut)


@given(TEXTS, GROUNDINGS, st.lists(st.sampled_from(["90 days?", "I paid €5", "AX-3391-B"]), max_size=2))
def test_no_unsupported_text_is_shown_and_only_a_bounded_part_is_delayed(
    text: str, grounding: list[Grounding], heard: list[str]
) -> None:
    guard = FactGuard(grounding, heard)
    known = Known([text for entry in grounding for text in (entry.question, entry.answer)])
    known.add(heard)
    shown = ""
    for char in text:
        shown += guard.feed(char)
        assert known.foreign(shown) == []
        assert guard.held_chars < MAX_CHARS + LOOKAHEAD_CHARS + 30
        assert next_cut(guard._held) is None, "no whole sentence waits"
    assert known.foreign(shown + guard.finish()) == []


@given(TEXTS)
def test_a_supported_text_passes_unchanged(text: str) -> None:
    guard = guarded(text, heard=(text, *sentences(text)))
    assume(not guard.cut)
    assert (guard._shown, guard.replaced) == (text, ())


@given(TEXTS, GROUNDINGS)
def test_the_stretches_lie_where_the_faqs_words_are(text: str, grounding: list[Grounding]) -> None:
    guard = guarded(text, *grounding)
    own = {entry.id: [part.strip() for part in sentences(entry.answer)] for entry in grounding}
    end = 0
    for each in guard.replaced:
        assert each.offset >= end
        end = each.offset + each.length
        words = guard._shown[each.offset : end]
        assert len(words) == each.length
        assert (each.id is None) == (each.length == 0)
        for part in sentences(words):
            assert each.id is not None
            assert part.strip() in own[each.id]


def test_an_unsupported_sentence_is_replaced_by_the_faqs_own() -> None:
    guard = guarded("Hello! You can return items within 90 days. Have a nice day.", RETURNS)
    assert guard._shown == "Hello! You can return items within 30 days of delivery. Have a nice day."
    assert guard.replaced == (Replaced(offset=7, length=48, id="return-period"),)
    assert guard.is_models


@pytest.mark.parametrize(
    ("text", "grounding", "heard", "shown"),
    [
        ("Yes, I do. You have 90 days. Bye.", [RETURNS], (), f"{RETURNED} Bye."),
        ("Yes, I do. You have 30 days. Bye.", [RETURNS], (), "You have 30 days. Bye."),
        ("可以。三天送达。", [ZH], (), ZH.answer),
        ("No.", [], (), "No."),
        ("It costs €5. That is all.", [], (), "That is all."),
        ("Yes. And no. Yes.", [], (), "Yes. And no. Yes."),
        ("You have 90 days. It weighs 5 kg.", [RETURNS], (), RETURNS.answer),
        (f"{RETURNED} It takes 9 weeks.", [RETURNS], (), RETURNED),
        ("You pay 30 euros.", [RETURNS], (), RETURNS.answer),
        ("Hello! Delivery is €9.", [RETURNS, COST], (), f"Hello! {COST.answer.partition('. ')[0]}."),
        ("你好！三天送达。", [RETURNS, ZH], (), "你好！标准配送 2–4 个工作日送达。"),
        ("For AX-3391-B you have 20 days.", [], ("20 days for AX-3391-B?",), "For AX-3391-B you have 20 days."),
        ("You can return items 30\n€9。30 days", [RETURNS], (), "You can return items 30\n30 days"),
        ("You can return items within 90 days.", [RETURNS], ("90 days?",), RETURNS.answer),
        ("For AX-3391-B it is 30 days.", [RETURNS], ("AX-3391-B?",), "For AX-3391-B it is 30 days."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_replacement_for_unsupported_text(
    text: str, grounding: list[Grounding], heard: tuple[str, ...], shown: str
) -> None:
    assert said(text, *grounding, heard=heard) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Well. You have 30", "Well. You have"),
        ("Well. You have 30 work", "Well. You have"),
        ("Well. You have 30 days of", "Well. You have 30 days of"),
    ],
)
def test_a_number_that_was_cut_off_is_not_shown(text: str, shown: str) -> None:
    assert said(text, RETURNS, whole=False) == shown
    assert said("Well. You have 30", RETURNS) == "Well. You have 30"


def test_the_faq_is_not_quoted_twice() -> None:
    guard = guarded("Hi! It is 90 days. It is 80 days. It is 70 days. It is 60 days.", RETURNS)
    assert guard._shown.count("30 days") == 1
    repeated = guarded(
        "Hi! It is 90 days to return items. You can return items within 30 days of delivery. Bye.", RETURNS
    )
    assert repeated._shown.count("30 days") == 1
    assert repeated._shown.endswith(" Bye.")


def test_a_repeated_sentence_ends_the_answer() -> None:
    guard = guarded("You can return items. It is 30 days. You can return items. It is 30 days.", RETURNS)
    assert (guard._shown, guard.cut, guard.replaced) == ("You can return items. It is 30 days.", True, ())
    assert guard.feed("more. ") == ""


def test_looping_words_end_the_answer_and_the_faqs_text_replaces_them() -> None:
    circle = "We ship it and then and then and then and then we"
    guard = guarded(circle, COST)
    assert (guard._shown, guard.cut, guard.is_models) == (COST.answer, True, False)
    assert (
        said(f"Express delivery costs €12.90. {circle}", RETURNS, shops=(COST.answer,))
        == "Express delivery costs €12.90."
    )
    assert not guarded("No, no, no, that is very, very good.").cut


def test_half_a_sentence_is_marked_as_broken_off() -> None:
    start = (
        "Standard delivery costs €4.90 and is free for orders from €60, while Express delivery costs €12.90, and this "
        "is for all orders, from orders of €60 to those of less, and Standard delivery, which is free from €60, is "
        "free for all of these orders, "
    )
    guard = guarded(start + "and you can return items within 90 days. Bye.", RETURNS, COST)
    shown, quoted = guard._shown, guard.replaced[0]
    assert shown[: quoted.offset].endswith(",… ")
    assert shown[quoted.offset :] == "You can return items within 30 days of delivery. Bye."


def test_every_packaged_answer_passes_its_own_grounding_unchanged() -> None:
    for entry in read_entries(PACKAGED_PATH):
        guard = guarded(entry.answer, entry.as_grounding())
        assert (guard._shown, guard.replaced, guard.cut) == (entry.answer, (), False), entry.id


TABLE = Grounding(id="table", question="Are there legs for the table?", answer="The legs are sold singly for €34.")
SHIPS = Grounding(id="ships", question="Do you ship abroad?", answer="Yes, with DHL to all EU countries.")
NOT_ABROAD = Grounding(id="abroad", question="Do you ship abroad?", answer="No. We ship within Norway only.")


@pytest.mark.parametrize(
    ("text", "entry", "shown"),
    [
        ("Yes, the legs are sold singly.", TABLE, "The legs are sold singly."),
        ("Yes. The legs are sold singly.", TABLE, "The legs are sold singly."),
        ("Yes, they are. The legs are sold singly.", TABLE, "The legs are sold singly."),
        ("No, the legs are sold singly.", TABLE, "The legs are sold singly."),
        ("是的，桌腿单独出售。", TABLE, "桌腿单独出售。"),
        ("Yes, we do ship abroad.", SHIPS, "Yes, we do ship abroad."),
        ("No, we do not ship to the EU countries.", SHIPS, SHIPS.answer),
        ("A: No, with DHL to all EU countries.", SHIPS, "With DHL to all EU countries."),
        ("You can't. The legs are sold singly.", TABLE, "The legs are sold singly."),
        ("The answer is yes. The legs are sold singly.", TABLE, "The legs are sold singly."),
        ("No. 5 is a leg.", TABLE, TABLE.answer),
    ],
)
def test_yes_and_no_are_said_only_where_the_entry_says_so(text: str, entry: Grounding, shown: str) -> None:
    assert said(text, entry) == shown


def test_an_answer_that_is_only_an_unborne_yes_is_withheld() -> None:
    guard = guarded("Yes.", TABLE)
    assert (guard._shown, guard.replaced) == ("", (Replaced(offset=0, length=0),))


@pytest.mark.parametrize(
    ("text", "entry", "shown"),
    [
        ("The table is FSC certified.", TABLE, TABLE.answer),
        ("It is made by Ikea.", TABLE, TABLE.answer),
        ("We ship with DHL.", SHIPS, "We ship with DHL."),
        ("We ship with GLS.", SHIPS, SHIPS.answer),
        ("Of course we ship to Norway.", NOT_ABROAD, "Of course we ship to Norway."),
        ("We ship to Sweden.", NOT_ABROAD, NOT_ABROAD.answer),
        ("桌子有 FSC 认证。", TABLE, TABLE.answer),
    ],
)
def test_names_stand_in_the_entry_or_are_not_shown(text: str, entry: Grounding, shown: str) -> None:
    assert said(text, entry, heard=("Is it FSC certified, by Ikea? Do you ship to Sweden with GLS?",)) == shown


def test_the_shops_own_words_bear_out_names() -> None:
    guard = FactGuard([TABLE], (), ("You answer for Nordhaus.",))
    assert guard.feed("At Nordhaus legs are sold singly. ") + guard.finish() == "At Nordhaus legs are sold singly. "


@pytest.mark.parametrize(
    ("text", "entry", "shown"),
    [
        ("The table can be delivered by drone.", TABLE, TABLE.answer),
        ("You can return the table.", TABLE, TABLE.answer),
        ("The legs are not sold singly.", TABLE, TABLE.answer),
        ("The legs aren’t sold singly.", TABLE, TABLE.answer),
        ("Express is free.", COST, "Express is free."),
        ("I'm a customer service AI.", TABLE, TABLE.answer),
        ("Hello, I am glad to help you. The legs are sold singly.", TABLE, None),
        ("Each of the table's legs is sold singly for €34.", TABLE, None),
        ("Shall I ask the carpenter about it?", TABLE, None),
        ("我们可以免费送货。", TABLE, None),
    ],
)
def test_a_sentence_says_what_the_entry_says_or_is_not_shown(text: str, entry: Grounding, shown: str | None) -> None:
    assert said(text, entry, heard=("Can you deliver the table by drone? Can I return it?",)) == (shown or text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("I am sorry, I do not know that. Shall I connect you with a person?", ""),
        ("I don’t know that.", ""),
        ("Overseas, I am not sure.", ""),
        ("Would you like me to transfer you to a colleague?", ""),
        ("Yes. I do not have that information.", ""),
        ("The legs are sold singly. Shall I connect you with a person?", "The legs are sold singly."),
        ("我不知道。需要为您转人工客服吗？", ""),
    ],
)
def test_a_model_does_not_say_that_it_does_not_know(text: str, shown: str) -> None:
    """The FAQ was found to answer, and only a shop with hand-offs offers a person."""
    guard = guarded(text, TABLE)
    assert (guard._shown, guard.abstained) == (shown, True)


def test_an_entry_that_says_what_is_not_known_is_shown() -> None:
    entry = Grounding(id="back", question="When is it back?", answer="We do not know the date yet.")
    assert said("We do not know the date yet.", entry) == "We do not know the date yet."
    other = Grounding(
        id="seal", question="Sundays?", answer="The seal must be whole. We cannot answer calls on Sunday."
    )
    assert said("We cannot answer calls on Sunday.", other) == "We cannot answer calls on Sunday."
    for sentence in ("I don't know that. Shall I connect you with a person?", "I cannot answer that."):
        assert guarded(sentence, other).abstained
    assert not guarded("The legs are sold singly.", TABLE).abstained
    assert said("I do not know that.") == "I do not know that.", "without an entry only facts are judged"
