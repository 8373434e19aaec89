"""A question is read on the event loop before its tokens are counted: only a bounded part of any text, each
line once.
"""

from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex, overload

import pytest

from gateway.people.handoff_wish import accepts_offer, wants_person
from shared.faq import FaqIndex, detect_language
from shared.faq.decision.reading import Readings
from shared.faq.fallback import choose_fallback
from shared.faq.small_talk import small_talk
from shared.faq.terms import seems_foreign
from shared.faq.words import mail
from shared.faq.words.fold import MAX_CHARS, fold, plain

FAQ = FaqIndex.load()
HEAD, TAIL = "How do I return an item? " * 200, " Can I talk to a person, please?" * 200
# Each took seconds, or has a part at which a pattern may be tried repeatedly.
PIECES: tuple[str, ...] = (
    "--\n",
    "|\n",
    "> a\n",
    "\n",
    "From: a\nSent: b\n",
    "On Mon, 3 Nov 2026, x wrote:\n",
    "<",
    "<a>",
    "<a b='",
    "&",
    "&lt;",
)
PIECES += (
    "_",
    ".",
    " ",
    "Sent from my iPhone ",
    "This e-mail is confidential\n\n",
    "\u200d",
    "a\u0301",
    "\U0001f600",
    "我",
    "x" + 500 * " ",
)
READERS: dict[str, Callable[[str], Any]] = {
    "plain": plain,
    "fold": fold,
    "wish": wants_person,
    "acceptance": accepts_offer,
    "small talk": small_talk,
    "language": detect_language,
    "foreign": seems_foreign,
    "search": FAQ.search,
    "fallback": lambda text: choose_fallback(text, FAQ.search(text)),
}


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("reader", READERS)
def test_the_middle_of_a_long_text_is_not_read(reader: str, piece: str) -> None:
    middle = piece * (60_000 // len(piece))
    read = READERS[reader]
    assert read(HEAD + middle + TAIL) == read(f"{HEAD}\n{TAIL}"[: MAX_CHARS // 2] + "?" * MAX_CHARS + TAIL)


@pytest.mark.parametrize("piece", PIECES)
def test_plain_text_is_bounded(piece: str) -> None:
    assert len(plain(piece * (60_000 // len(piece)))) <= MAX_CHARS + 1


@pytest.mark.parametrize("mark", ["\n", "<br>", "é", "我"])
@pytest.mark.parametrize("space", [" ", "\t", "\u00a0", "\u3000", " \t"])
def test_a_run_of_spaces_becomes_two(space: str, mark: str) -> None:
    """Patterns that begin with spaces are tried at each one: a run of 2,000 took seconds."""
    assert "   " not in plain(f"x{mark}a{space * 2_000}b")


class Visited(list[str]):
    """Lines that count how many of them are read or copied."""

    num = 0

    @overload
    def __getitem__(self, at: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.num += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self) -> Iterator[str]:
        self.num += len(self)
        return super().__iter__()


@pytest.mark.parametrize("piece", [piece for piece in PIECES if "\n" in piece])
def test_each_line_of_a_mail_is_read_a_few_times_at_most(piece: str) -> None:
    lines = Visited(("Hello\n" + piece * 1_000).split("\n"))
    mail._own(lines)
    assert lines.num < 40 * len(lines)


@pytest.mark.parametrize(("names", "read_again"), [(1, True), (16, True), (17, False), (2_000, False)])
def test_a_question_is_not_read_again_without_very_many_names(
    monkeypatch: pytest.MonkeyPatch, names: int, *, read_again: bool
) -> None:
    """The names are taken out for each entry that lacks them, which took 150 ms for 8,000 characters."""
    read = list[str]()

    def count(self: Readings, question: str, weights: Any = None) -> Any:
        read.append(question)
        return asked(self, question, weights)

    asked = Readings.asked
    monkeypatch.setattr(Readings, "asked", count)
    words = " ".join(f"x Q{chr(97 + at // 676)}{chr(97 + at // 26 % 26)}{chr(97 + at % 26)}" for at in range(names))
    assert all(hit.sureness < 0.5 for hit in FAQ.search(f"return an item {words}"))
    assert (len(read) > 1) is read_again
