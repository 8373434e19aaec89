"""`replyline faq read` of tables: by the names of their columns, with any separator of cells."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from shared.faq.entries import FaqEntry, read_entries
from tests.unit.ops.operate.faq.test_read import ENGLISH, read

GERMAN: Final = "Wir liefern in alle Länder der EU, und das Paket ist in drei Tagen bei Ihnen."
CHINESE: Final = "我们送到欧盟所有国家，包裹三天送到。"

EntriesOf = Callable[..., list[FaqEntry]]


@pytest.fixture
def entries_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> EntriesOf:
    """Return the entries of a table's bytes."""

    def start(content: bytes | str, status: int = 0) -> list[FaqEntry]:
        (tmp_path / "a.csv").write_bytes(content.encode() if isinstance(content, str) else content)
        out = tmp_path / "out" / "faq.json"
        out.parent.mkdir(exist_ok=True)
        assert read(monkeypatch, str(tmp_path / "a.csv"), "--out", str(out)) == status
        return read_entries(out) if status == 0 else []

    return start


ROWS: Final = (
    ("question", "answer", "language", "url", "also"),
    ("Shipping; abroad", f"{ENGLISH} It's free, really.", "en", "https://shop.example/a", "parcel | post"),
)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("form", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_is_read_whatever_separates_its_cells(entries_of: EntriesOf, separator: str, form: str) -> None:
    lines = [separator.join(f'"{cell}"' for cell in row) for row in ROWS]
    (entry,) = entries_of("\r\n".join(lines).encode(form))
    assert (entry.question, entry.answer, entry.language) == (*ROWS[1][:2], "en")
    assert (entry.url, entry.also) == ("https://shop.example/a", ("parcel", "post"))


def test_a_separator_that_a_columns_name_has_more_often_is_not_the_tables(entries_of: EntriesOf) -> None:
    (entry,) = entries_of(f'Question;Answer;"tags, as a, b, c"\nShipping;"{ENGLISH}";\n')
    assert (entry.question, entry.answer) == ("Shipping", ENGLISH)


def test_rows_in_a_third_language_are_left_out_one_by_one(
    entries_of: EntriesOf, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = entries_of(
        f"Locale,Question,Answer\nde-DE,Versand,{GERMAN.replace(',', '')}\nde,Porto,Kosten: 5 Euro\n"
        f'en-US,Shipping,"{ENGLISH}"\nzh_CN,配送,{CHINESE}\nfr,Retours,"Sous 30 jours, dans la boîte."\n'
    )
    assert [(each.question, each.language) for each in kept] == [("Shipping", "en"), ("配送", "zh")]
    assert capsys.readouterr().err.splitlines() == [
        f'left out: a.csv: "{question}" is in neither English nor Chinese (it says "{language}")'
        for question, language in (("Versand", "de-DE"), ("Porto", "de"), ("Retours", "fr"))
    ]


def test_rows_of_one_id_are_an_entry_in_two_languages(
    entries_of: EntriesOf, capsys: pytest.CaptureFixture[str]
) -> None:
    table = f'id,lang,question,answer\nship,en,Shipping,"{ENGLISH}"\nship,zh,配送,{CHINESE}\n'
    one, two = entries_of(table)
    assert (one.id, one.language, two.language) == (two.id, "en", "zh")
    edited, _ = entries_of(table.replace("Shipping", "Delivery"))
    assert (edited.id, edited.question) == (one.id, "Delivery")
    assert len(entries_of(f'{table}ship,en,Postage,"{ENGLISH}"\n')) == 2
    assert 'a.csv: "Postage" has the id of "Shipping"; give it another' in capsys.readouterr().err


def test_wordings_may_be_in_several_columns_and_another_entrys_are_left_out(
    entries_of: EntriesOf, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = entries_of(
        "Question,Question 2,Also,Also 2,Answer\n"
        f'Shipping,When does it come?,"Returns;parcel\nparcel",post,"{ENGLISH}"\n'
        f'Returns,Shipping,{"long " * 500},post,"Within 30 days, in its box."\n'
    )
    assert first.also == ("When does it come?", "parcel", "post")
    assert second.also == ()
    assert [line.split(": ", 2)[2] for line in capsys.readouterr().err.splitlines()] == [
        '"Shipping" its wording "Returns" is another\'s',
        '"Returns" its wording "Shipping" is another\'s',
        f'"Returns" a wording has a text of 2499 characters ("{"long " * 12}…"); the most is 600',
        '"Returns" its wording "post" is another\'s',
    ]


def test_what_is_not_used_of_a_table_is_one_line_each(
    entries_of: EntriesOf, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ",".join(f"c{place}x" for place in range(12))
    (entry,) = entries_of(f'question,answer,url,{names}\nShipping,"{ENGLISH}",shop.example/a\n')
    assert entry.url == ""
    one, two = capsys.readouterr().err.splitlines()
    assert one.startswith('left out: a.csv: the columns "c0x", "c1x", ')
    assert one.endswith('"c9x" and 2 more are not read; known are question, answer, also, language, url, id')
    assert two.startswith('left out: a.csv: "Shipping" its url "shop.example/a" is not used; write https://')


def test_a_table_without_named_columns_is_one_line(entries_of: EntriesOf, capsys: pytest.CaptureFixture[str]) -> None:
    entries_of(f"Shipping;{ENGLISH}\n", status=2)
    line = 'left out: a.csv: its first row has to name the columns: "question" and "answer"'
    assert capsys.readouterr().err.splitlines()[0] == line


@pytest.mark.parametrize("end", ["_", " ", "1", ": "])
def test_a_columns_name_of_any_length_is_read_in_no_time(entries_of: EntriesOf, end: str) -> None:
    """Each was searched from each of its characters on: one of 40 KB for minutes."""
    table = f"question,answer,{end * 200_000}x\nHow long is it?,It is three days long.\n"
    assert len(entries_of(table)) == 1
