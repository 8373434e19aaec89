"""Read a table's rows as questions with their answers, by the names of its columns. Pure."""

import csv
import io
import re
from collections.abc import Callable
from string import digits, whitespace
from typing import Final

from ops.operate.faq.blocks import Asked, Row
from shared.faq.entries import check_page
from shared.faq.texts import shown

_COLUMNS: Final = {
    "question": ("question", "questions", "q", "title", "frage", "问题", "問題", "标题", "標題"),
    "answer": ("answer", "answers", "a", "text", "body", "content", "antwort", "答案", "回答", "内容", "內容"),
    "also": ("also", "alternatives", "alternative", "wordings", "variants", "synonyms", "其他问法", "其他問法"),
    "language": ("language", "lang", "locale", "sprache", "语言", "語言"),
    "url": ("url", "link", "链接", "鏈接", "網址", "网址"),
    "id": ("id", "key", "slug", "编号", "編號"),
}
_SEPARATORS: Final = "\t;,|"
_BETWEEN_WORDINGS: Final = re.compile(r"[\n|;；]")
_MOST_NAMED: Final = 10
_BEFORE_NUMBER: Final = f"{whitespace}\u00a0\u3000_*:"

Note = tuple[str, str]


def read_rows(text: str, plain: Callable[[str], str]) -> tuple[list[Asked], list[Note]]:
    """Return the questions of a table, and what was not used of it.

    Args:
        text: the table, its cells separated by commas, semicolons, tabs or bars
        plain: returns a cell's text without markup

    Returns:
        The questions, and notes: the question that a note is on (empty: the table), and what was not used and why.

    Raises:
        ValueError: the text is no table, or its columns have no names; with the remedy
    """
    text = re.sub(r"\Asep=.\r?\n", "", text)
    try:
        separator = _separator(text)
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error as error:
        raise ValueError(f"is no table: {error}") from error
    header = [_name(cell) for cell in rows[0]] if rows else []
    places = _places(header)
    if not {"question", "answer"} <= places.keys():
        raise ValueError('its first row has to name the columns: "question" and "answer"')
    asked, notes = list[Asked](), list[Note]()
    used = {place for found in places.values() for place in found}
    if others := [shown(cell.strip()) for place, cell in enumerate(rows[0]) if place not in used and cell.strip()]:
        more = "" if len(others) <= _MOST_NAMED else f" and {len(others) - _MOST_NAMED} more"
        known = ", ".join(names[0] for names in _COLUMNS.values())
        notes.append(("", f"the columns {', '.join(others[:_MOST_NAMED])}{more} are not read; known are {known}"))
    for number, row in enumerate(rows[1:], start=2):
        cells = {
            column: "\n".join(filter(None, (plain(row[place]) for place in found if place < len(row))))
            for column, found in places.items()
        }
        question, answer = " ".join(cells["question"].split()), cells["answer"]
        if question and answer:
            asked.append(Asked(question, answer, whole=True, row=_row(cells, question, notes)))
        elif question or answer:
            notes.append((question, f"has no {'answer' if question else 'question'}, row {number}"))
    return asked, notes


def _separator(text: str) -> str:
    """Return the separator by which the first row names the columns; else the one that it has most often."""
    first = text.partition("\n")[0]
    for separator in sorted(_SEPARATORS, key=first.count, reverse=True):
        header = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])
        if {"question", "answer"} <= _places([_name(cell) for cell in header]).keys():
            return separator
    return max(_SEPARATORS, key=first.count)


def _places(header: list[str]) -> dict[str, list[int]]:
    """Return the places of each known column. Further columns of questions are wordings, which may be in several."""
    found, also = dict[str, list[int]](), list[int]()
    for column, names in _COLUMNS.items():
        known = [[place for place, cell in enumerate(header) if cell == name] for name in names]
        if column == "also":
            also += [place for places in known for place in places]
        elif first := next(filter(None, known), None):
            found[column] = first[:1]
            also += first[1:] if column == "question" else []
    return {**found, "also": also} if also else found


def _name(cell: str) -> str:
    """Return a column's name as it is known: "Also 2" is "also"."""
    return cell.strip().strip("\ufeff").casefold().rstrip(digits).rstrip(_BEFORE_NUMBER)


def _row(cells: dict[str, str], question: str, notes: list[Note]) -> Row:
    url = cells.get("url", "").strip()
    if url:
        try:
            check_page(url)
        except ValueError as error:
            notes.append((question, f"its url {shown(url)} is not used; {error}"))
            url = ""
    also = (" ".join(each.split()) for each in _BETWEEN_WORDINGS.split(cells.get("also", "")))
    return Row(cells.get("id", "").strip(), cells.get("language", "").strip(), url, tuple(filter(None, also)))
