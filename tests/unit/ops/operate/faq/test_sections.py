"""How a page is cut into questions with answers."""

import pytest

from ops.operate.faq.blocks import Asked, Block, Heading, Text
from ops.operate.faq.files import Page
from ops.operate.faq.sections import read_once, sections_of, with_own_titles


def asked(*blocks: Block, title: str = "Returns | Shop") -> list[tuple[str, str]]:
    (page,) = with_own_titles([Page("returns.html", title, "en", blocks, is_site=True)])
    return [(each.question, each.answer) for each in sections_of(page)]


def test_the_path_of_headings_is_the_question() -> None:
    assert asked(
        Heading(1, "Returns"), Text("In 30 days."), Heading(2, "Fees"), Heading(3, "Poland:"), Text("4.90 €"),
        Heading(2, "Exchange"), Text("Free."),
    ) == [("Returns", "In 30 days."), ("Returns – Fees – Poland", "4.90 €"),
         ("Returns – Exchange", "Free.")]  # fmt: skip


def test_a_question_stands_alone_and_another_term_below_its_headings() -> None:
    assert asked(Heading(1, "Help"), Heading(2, "Is it free?"), Text("Yes."), Asked("Weight", "3 kg")) == [
        ("Help – Is it free? – Weight", "3 kg"), ("Is it free?", "Yes."),
    ]  # fmt: skip


def test_a_page_without_a_heading_has_its_title_or_its_files_name() -> None:
    assert asked(Text("In 30 days.")) == [("Returns", "In 30 days.")]
    assert asked(Text("In 30 days."), title="") == [("returns", "In 30 days.")]


def test_a_long_section_is_cut_at_its_paragraphs() -> None:
    first, second = "word " * 200, "Later. " * 100
    assert asked(Heading(1, "Terms"), Text(first), Text(second)) == [
        ("Terms", first), ("Terms – Later. Later. Later. Later. Later. Later. Later. Later.…", second),
    ]  # fmt: skip


def test_a_long_list_is_cut_at_its_items() -> None:
    items = [f"- item {number} {'x' * 40}" for number in range(60)]
    parts = [answer for _, answer in asked(Heading(1, "All"), Text("\n".join(items)))]
    assert len(parts) > 1
    assert "\n".join(parts).split("\n") == items
    assert max(map(len, parts)) <= 1_300


def test_two_questions_alike_have_the_headings_above_them() -> None:
    assert asked(
        Heading(1, "Help"), Heading(2, "Shipping"), Heading(3, "Is it free?"), Text("From 50 €."),
        Heading(2, "Returns"), Asked("Is it free?", "Always."),
    ) == [("Help – Shipping – Is it free?", "From 50 €."), ("Help – Returns – Is it free?", "Always.")]  # fmt: skip


def test_what_most_pages_have_is_read_once() -> None:
    pages = [Page(f"{n}.html", "", "", (Text("Call us"), Text(f"own {n}"))) for n in range(4)]
    kept, repeated = read_once(pages)
    first, *others = [page.blocks for page in kept]
    assert first == (Text("Call us"), Text("own 0"))
    assert others == [(Text(f"own {n}"),) for n in range(1, 4)]
    assert repeated == ["Call us"]
    assert read_once(pages[:3]) == (pages[:3], [])


@pytest.mark.parametrize("form", ["{} | Wool | Berlin", "Wool | {} | Berlin", "Wool – Berlin – {}"])
def test_the_sites_name_is_no_part_of_a_title(form: str) -> None:
    pages = [Page("a.html", form.format(title), "", (), is_site=True) for title in ("Returns", "Fees – Poland", "Fees")]
    assert [page.title for page in with_own_titles(pages)] == ["Returns", "Fees – Poland", "Fees"]


def test_a_title_that_the_shop_wrote_stays_whole() -> None:
    assert with_own_titles([Page("a.md", "Shipping – Poland", "", ())])[0].title == "Shipping – Poland"
