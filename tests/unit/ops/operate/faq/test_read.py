"""`replyline faq read`: files in, an FAQ file out, and a line for what gives no entry."""

import json
from pathlib import Path
from typing import Any

import pytest

from ops import cli
from shared.faq import FaqIndex
from shared.faq.entries import read_entries

ENGLISH = "We deliver to all countries of the EU, and the parcel is with you in three days."
ZENDESK: dict[str, Any] = {
    "articles": [
        {"title": "Shipping", "body": f"<p>{ENGLISH}</p>", "draft": False, "locale": "en-us"},
        {"title": "Secret", "body": "<p>Not to be read by anyone.</p>", "draft": True},
        {"title": "Versand", "body": "<p>Wir liefern in die ganze EU.</p>", "locale": "de"},
    ]
}
ONE = {
    "shipping.md": f"# Shipping\n\n{ENGLISH}\n",
    "front.md": f"---\ntitle: Shipping\nlayout: page\n---\n\n{ENGLISH}\n",
    "shipping.txt": f"Shipping\n========\n\n{ENGLISH}\n",
    "shipping.html": f"<title>Shipping | Shop</title><p>{ENGLISH}</p>",
    "windows.html": f"\ufeff<h1>Shipping</h1>\r\n<p>{ENGLISH}</p>",
    "q.csv": f'Answer,Question\n"{ENGLISH}",Shipping\n',
    "semicolons.csv": f'question;answer;note\nShipping;"{ENGLISH}";\n\n',
    "tabs.tsv": f"问题\t答案\nShipping\t{ENGLISH}\n",
    "zendesk.json": json.dumps(ZENDESK),
    "intercom.json": json.dumps(
        {"type": "list", "data": [{"title": "Shipping", "body": f"<p>{ENGLISH}</p>", "state": "published"}]}
    ),
    "shopify.json": json.dumps({"data": {"shop": {"shippingPolicy": {"title": "Shipping", "body": ENGLISH}}}}),
}
NONE = {
    "a.doc": ("", "a.doc: .doc is not read; save it as .docx, .pdf or HTML"),
    "a.html": ("<form><input type=password></form>", "a.html: asks for a password; save the page that is behind it"),
    "b.html": ("<title>404 Not Found</title><p>Oh no</p>", 'b.html: says "404 Not Found"'),
    "c.html": ("<div>" * 5_000, "c.html: is nested too deeply"),
    "a.csv": ("a,b\n1,2\n", 'a.csv: its first row has to name the columns: "question" and "answer"'),
    "b.csv": ('question,answer\n"a,b\n', 'b.csv: "a,b" has no answer, row 2'),
    "a.json": ("[1, 2", "a.json: is no JSON: Expecting"),
    "b.json": ('{"a": 1}', 'b.json: has no article: an object with "title" and "body"'),
    "a.md": ("# Versand\n\nWir liefern nach Polen.", "a.md: is in neither English nor Chinese"),
    "b.md": ("# Shipping\n\nOh no.", 'b.md: "Shipping" says only "Oh no."'),
    "c.md": (
        "# Shipping\n\n`<script src=x>` goes before the end of the page.",
        "write plain text, a link as its address",
    ),
    **{
        name: (text, f"{name}: has no text of its own; save it as a browser shows it")
        for name, text in {
            "empty.md": "",
            "spaces.txt": " \n\n",
            "headings.md": "# Shipping\n\n## Abroad\n",
            "front.md": "---\ntitle: Shipping\n---\n",
            "script.html": "<title>Shipping</title><script>draw()</script>",
            "header.csv": "question,answer\n",
        }.items()
    },
}


def read(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["replyline", "faq", "read", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(str(ended.value.code or 0))


@pytest.mark.parametrize("name", ONE)
def test_each_kind_of_file_gives_its_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(ONE[name], encoding="utf-16" if name == "windows.html" else "utf-8")
    out = tmp_path / "faq.json"
    assert read(monkeypatch, str(tmp_path), "--out", str(out)) == 0
    (entry,) = read_entries(out)
    assert (entry.question, entry.answer, entry.language) == ("Shipping", ENGLISH, "en")
    assert FaqIndex([entry]).search("How is the shipping?")[0].entry == entry


@pytest.mark.parametrize("name", NONE)
def test_a_file_without_entries_is_one_line_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    text, line = NONE[name]
    (tmp_path / name).write_text(text)
    assert read(monkeypatch, str(tmp_path)) == 2
    assert line in capsys.readouterr().err.splitlines()[0]
    (tmp_path / "good.md").write_text(ONE["shipping.md"])
    (tmp_path / "logo.png").write_bytes(b"\x89PNG")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "hidden.md").write_text("# No\n\nThis is not to be read by anyone.")
    assert read(monkeypatch, str(tmp_path)) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[1:] == ["no pages: 1 file (.png 1)"]
    assert printed.out.startswith("1 entry of ")


def test_pages_of_one_title_are_one_entry_unless_their_figures_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, days in {"a": 30, "b": 30, "c": 14, "d": 14}.items():
        (tmp_path / f"{name}.md").write_text(f"# Returns\n\nYou can send it back within {days} days, in its box.\n")
    assert read(monkeypatch, str(tmp_path / "a.md"), str(tmp_path / "b.md"), "--out", str(tmp_path / "faq.json")) == 0
    before = (tmp_path / "faq.json").read_bytes()
    assert len(read_entries(tmp_path / "faq.json")) == 1
    assert capsys.readouterr().err == ""
    assert read(monkeypatch, str(tmp_path), "--out", str(tmp_path / "faq.json")) == 2
    assert capsys.readouterr().err.splitlines()[:-1] == [
        'left out: a.md: "Returns" has other figures on c.md; correct one of them',
        'left out: c.md: "Returns" has other figures on a.md; correct one of them',
        'left out: d.md: "Returns" has other figures on c.md; correct one of them',
    ]
    assert (tmp_path / "faq.json").read_bytes() == before
    (tmp_path / "e.md").write_text("# Hours\n\nIt is open on all days of the week.\n")
    assert read(monkeypatch, str(tmp_path), "--out", str(tmp_path / "faq.json")) == 0
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_an_entrys_id_and_the_wordings_added_to_it_stay_while_its_text_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page, out = tmp_path / "page.md", tmp_path / "faq.json"
    page.write_text("# Hours\n\nIt is open on all days of the week.\n")
    assert read(monkeypatch, str(page), "--out", str(out)) == 0
    (before,) = read_entries(out)
    added = out.read_text().replace('"alternatives": []', '"alternatives": ["When may I come?", "Sundays"]')
    out.write_text(added)
    page.write_text(
        "# Hours\n\nIt is closed on Sundays, and open otherwise.\n\n# Sundays\n\nWe are closed on that day.\n"
    )
    assert read(monkeypatch, str(page), "--out", str(out)) == 0
    hours, _ = read_entries(out)
    assert (hours.id, hours.alternatives) == (before.id, ("When may I come?",))


def test_a_question_of_another_file_of_the_faq_keeps_its_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    faq, page = tmp_path / "faq", tmp_path / "page.md"
    faq.mkdir()
    entry = {"question": "Shipping?", "alternatives": [], "answer": "By bus."}
    (faq / "own.json").write_text(json.dumps([{"id": "own", "topic": "own", "en": entry}]))
    page.write_text(f"# Shipping\n\n{ENGLISH}\n\n## Abroad\n\nTo Norway too, in a week or in two.\n")
    monkeypatch.setenv("REPLYLINE_FAQ__PATH", str(faq))
    assert read(monkeypatch, str(page), "--out", str(faq / "site.json")) == 0
    assert 'left out: page.md: "Shipping" is asked by the entry "own" of own.json beside it' in capsys.readouterr().err
    assert [each.question for each in read_entries(faq)] == ["Shipping?", "Shipping – Abroad"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ftp://shop.example/help"], "ftp:/shop.example/help: does not exist; name an existing file or folder"),
        (["nosuch"], "nosuch: does not exist; name an existing file or folder"),
        ([".", "--out", "faq.txt"], "--out faq.txt: name a file that ends in .json"),
        (["."], "no entry; name pages with headings, or with questions and answers"),
    ],
)
def test_a_wrong_argument_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read(monkeypatch, *words) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(said)


HIDDEN: tuple[dict[str, Any], ...] = (
    {"draft": True}, {"draft": "true"}, {"draft": 1}, {"state": "draft"}, {"status": 1}, {"status": 0},
    {"status": "private"}, {"published": False}, {"published_at": None}, {"user_segment_id": 7},
    {"visibility": "agents"},
)  # fmt: skip
SHOWN: tuple[dict[str, Any], ...] = (
    {"draft": False}, {"status": 2}, {"status": "publish"}, {"state": "published"}, {"published": True},
    {"published_at": "2026-01-01"}, {"user_segment_id": None},
)  # fmt: skip


@pytest.mark.parametrize("fields", [*HIDDEN, *SHOWN], ids=str)
def test_only_what_customers_see_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, fields: dict[str, Any]
) -> None:
    page = tmp_path / "export.json"
    page.write_text(json.dumps({"payload": {"nodes": [{"title": "Shipping", "body": ENGLISH} | fields]}}))
    assert read(monkeypatch, str(page)) == (2 if fields in HIDDEN else 0)
    printed = capsys.readouterr()
    assert ('export.json: "Shipping" is not public: ' in printed.err) == (fields in HIDDEN)


def test_a_file_that_a_person_wrote_is_not_overwritten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, page = tmp_path / "mine.json", tmp_path / "shipping.md"
    out.write_text('[{"id": "own", "topic": "a", "en": {"question": "Hm?", "alternatives": [], "answer": "Yes."}}]')
    page.write_text(ONE["shipping.md"])
    before = out.read_bytes()
    assert read(monkeypatch, str(page), "--out", str(out)) == 2
    assert 'has the entry "own", which was read from no page; name another file' in capsys.readouterr().err
    assert out.read_bytes() == before


def test_what_a_person_added_stays_and_what_no_page_has_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real, link, page = tmp_path / "real.json", tmp_path / "faq.json", tmp_path / "page.md"
    page.write_text(f"# Shipping\n\n{ENGLISH}\n\n# Returns\n\nWithin 30 days of the delivery.\n")
    link.symlink_to(real)
    real.write_text("[]")
    real.unlink()
    assert read(monkeypatch, str(page), "--out", str(real)) == 0
    first, second = json.loads(real.read_text())
    first |= {"zh": {"question": "配送", "alternatives": [], "answer": "三天送到。"}}
    first["en"]["also"] = ["parcel"]
    real.write_text(json.dumps([first, second]))
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "p.md").write_text(f"# Shipping\n\n{ENGLISH}\n")
    assert read(monkeypatch, str(tmp_path / "moved"), "--out", str(link)) == 0
    assert json.loads(real.read_text()) == [first]
    assert link.is_symlink()
    assert 'gone: "Returns"\n' in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["faq.html?lang=en", "index.php", "faq", "faq.aspx", "b\udcff.html", "two\nlines.html"]
)
def test_a_saved_page_is_read_whatever_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / name).write_text(f"<!doctype html><h1>Shipping</h1><p>{ENGLISH}</p><h1>No</h1><p>no</p>")
    assert read(monkeypatch, str(tmp_path / "site"), "--out", str(tmp_path / "faq.json")) == 0
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["Yes, within 30 days.", "Free shipping on orders over $50.", "3-5 business days: EU."]
)
def test_a_short_english_answer_is_no_foreign_language(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.csv").write_text(f'question,answer\nDelivery,"{text}"\n')
    assert read(monkeypatch, str(tmp_path)) == 0


@pytest.mark.parametrize(
    "text", ["Wir liefern nach Polen in drei Tagen.", "Nous livrons dans toute l'Europe.", "3日で届きます。"]
)
def test_another_language_is_named_whatever_the_page_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.html").write_text(f"<html lang=en><h1>Versand</h1><p>{text}</p>")
    assert read(monkeypatch, str(tmp_path)) == 2
    assert "is in neither English nor Chinese" in capsys.readouterr().err
