"""`replyline faq read`: PDF, Word and spreadsheets. A damaged or hostile one is one line, and the others are read."""

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import pypdf
import pytest

from ops.operate.faq import documents
from ops.operate.faq.documents import Document, open_document
from shared.faq.entries import read_entries
from tests.unit.ops.operate.faq.conftest import Read
from tests.unit.ops.operate.faq.test_read import ENGLISH
from tests.unit.ops.operate.faq.test_read import read as read_files
from tests.unit.ops.operate.faq.test_site import page

WORD: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET: Final = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATION: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE: Final = "http://schemas.openxmlformats.org/package/2006"
PDF_TYPE: Final = {"content-type": "application/pdf"}

Shown = tuple[str, float, float]  # text, size, height on a page of 800 points; a negative size is bold


def pdf(*pages: list[Shown]) -> bytes:
    """Return a PDF whose pages show these lines."""
    fonts = b"<</Font <</F1 4 0 R /F2 5 0 R>>>>"
    bodies = [b"", b"", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    bodies.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica-Bold>>")
    kids = []
    for lines in pages:
        shown = "".join(
            f"BT /F{1 if size > 0 else 2} {abs(size)} Tf 50 {y} Td ({text}) Tj ET\n" for text, size, y in lines
        ).encode()
        bodies.append(b"<</Length %d>>stream\n%s\nendstream" % (len(shown), shown))
        bodies.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources %s/Contents %d 0 R>>" % (fonts, len(bodies))
        )
        kids.append(b"%d 0 R" % len(bodies))
    bodies[0] = b"<</Type/Catalog/Pages 2 0 R>>"
    bodies[1] = b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(kids), b" ".join(kids))
    bodies[2] = b"<<>>"
    file, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(bodies, start=1):
        places.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1)
    file += b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(file + b"trailer<</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF" % (len(bodies) + 1, start))


def protected(password: str, owner: str = "owner") -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf([("Shipping", 20, 700), *said(ENGLISH)])))
    writer.encrypt(password, owner, algorithm="AES-256")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def said(text: str, size: float = 11, top: float = 650) -> list[Shown]:
    return [(line, size, top - 15 * number) for number, line in enumerate(text.split("\n"))]


def packed(**files: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file.getvalue()


def docx(body: str, *, before: str = "", **others: str) -> bytes:
    """Return a Word file with this XML in its body."""
    return packed(
        **{
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="1" '
            f'Type="{RELATION}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}"><w:style w:type="paragraph" w:styleId="Heading1">'
            '<w:name w:val="heading 1"/></w:style></w:styles>',
            "word/document.xml": f'{before}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
            **others,
        }
    )


def paragraph(text: str, style: str = "") -> str:
    named = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{named}<w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def xlsx(*rows: tuple[str, ...]) -> bytes:
    cells = "".join(
        "<row>" + "".join(f'<c t="inlineStr"><is><t>{escape(cell)}</t></is></c>' for cell in row) + "</row>"
        for row in rows
    )
    return packed(
        **{
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{RELATION}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{RELATION}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{SHEET}" xmlns:r="{RELATION}"><sheets>'
            '<sheet name="Help" sheetId="1" r:id="r1"/></sheets></workbook>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{SHEET}"><sheetData>{cells}</sheetData></worksheet>',
        }
    )


LAUGHS: Final = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {name} "' + f"&{before};" * 10 + '">' for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
BAD: Final[dict[str, tuple[bytes | Callable[[], bytes], str]]] = {
    "bomb.docx": (
        lambda: docx(paragraph(ENGLISH), **{"word/media/a.bin": "\0" * (300 << 20)}),
        "bomb.docx: unpacks to 300 MiB, the most is 256; save it again",
    ),
    "bomb.xlsx": (
        lambda: packed(**{"xl/workbook.xml": " " * (300 << 20)}),
        "bomb.xlsx: unpacks to 300 MiB, the most is 256; save it again",
    ),
    "laughs.docx": (
        docx(paragraph("x").replace("x", "&j;"), before=f"{LAUGHS}]>"),
        "laughs.docx: is a damaged .docx: ",
    ),
    "files.docx": (
        docx(paragraph("x").replace("x", "&a;"), before='<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]>'),
        "files.docx: has no text of its own",
    ),
    "text.docx": (b"Shipping", "text.docx: is a damaged .docx: File is not a zip file; save it again"),
    "other.docx": (packed(a="b"), "other.docx: is a damaged .docx: "),
    "other.xlsx": (packed(a="b"), "other.xlsx: is a damaged .xlsx: "),
    "columns.xlsx": (
        xlsx(("a", "b"), ("1", "2")),
        'columns.xlsx Help: its first row has to name the columns: "question" and "answer"',
    ),
    "scanned.pdf": (
        pdf([], []),
        "scanned.pdf: has no text, only pictures: OCR is not done; export it with its text, or type its questions",
    ),
    "secret.pdf": (protected("secret"), "secret.pdf: needs a password; save it without one"),
    "text.pdf": (b"Shipping", "text.pdf: is a damaged PDF: "),
    "empty.pdf": (b"", "empty.pdf: is a damaged PDF: "),
    "cut.pdf": (pdf([("Shipping", 20, 700)])[:300], "cut.pdf: "),
    "loop.pdf": (
        pdf([("Shipping", 20, 700)]).replace(b"/Kids[7 0 R]", b"/Kids[2 0 R]"),
        "loop.pdf: ",
    ),
    "long.xlsx": (
        lambda: xlsx(("question", "answer"), ("How long?", "x" * (17 << 20))),
        "long.xlsx: has 17 MiB of text, the most is 16; split it",
    ),
    "large.pdf": (lambda: b"%PDF" + b"\0" * (51 << 20), "large.pdf: has 51 MiB, the most is 50; split it"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_or_damaged_document_is_one_line_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    content, line = BAD[name]
    (tmp_path / name).write_bytes(content() if callable(content) else content)
    (tmp_path / "good.md").write_text(f"# Shipping\n\n{ENGLISH}\n")
    assert read_files(monkeypatch, str(tmp_path)) == 0
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith(f"left out: {line}")


def test_a_pdf_whose_font_names_half_a_character_is_read() -> None:
    half = b"1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfchar <41> <D83D> endbfchar"
    stream = b"3 0 obj\n<</Length %d>>stream\n%s\nendstream" % (len(half), half)
    file = pdf([("Shipping A", 20, 700)]).replace(b"3 0 obj\n<<>>", stream)
    file = file.replace(b"/BaseFont/Helvetica>>", b"/BaseFont/Helvetica/ToUnicode 3 0 R>>")
    (part,) = open_document(".pdf", file).parts
    assert part.text == "<p>Shipping ?</p>"


def test_a_document_that_takes_too_long_or_too_much_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    file = pdf([("Shipping", 20, 700)])
    monkeypatch.setattr(documents, "_SECONDS", 0.01)
    assert open_document(".pdf", file).fault == "takes longer than 0.01 s; split it"
    monkeypatch.setattr(documents, "_SECONDS", 60)
    monkeypatch.setattr(sys, "executable", "/bin/false")  # as one that the kernel kills
    assert open_document(".pdf", file).fault == "cannot be read within 2 GiB of memory; split it"


@pytest.mark.parametrize(("kind", "package"), [(".pdf", "pypdf"), (".docx", "mammoth"), (".xlsx", "python_calamine")])
def test_without_the_extra_a_document_is_one_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "ops.operate.faq.pdf", raising=False)
    line = f"{package} is not installed; run: pip install 'replyline[documents]'"
    assert documents._read(kind, b"") == Document(fault=line)


HANDBOOK: Final = [
    [
        ("Harbor handbook 2026 - confidential", 8, 780),
        (f"{name} of the parcel", 20, 700),
        ("A parcel of this group is with you after the days that the table below names, and in its", 11, 670),
        (f"box you find the paper of which you need for its return within {number + 10} days, and a pay-", 11, 655),
        ("ment of its own.", 11, 640),
        ("How much does it cost?", -11, 620),
        ("The price depends on the country:", 11, 605),
        ("- Germany: free", 11, 590),
        (f"- Norway: {number + 12} EUR", 11, 575),
        (f"Harbor GmbH, +49 30 1234567, page {number + 1} of 4", 8, 20),
    ]
    for number, name in enumerate(("Size", "Weight", "Value", "Colour"))
]


def test_a_pdf_is_read_by_its_headings_without_headers_and_footers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, out = tmp_path / "handbook.pdf", tmp_path / "faq.json"
    file.write_bytes(pdf(*HANDBOOK))
    assert read_files(monkeypatch, str(file), "--out", str(out)) == 0
    first, second, *_ = entries = read_entries(out)
    assert len(entries) == 8
    assert first.question == "Size of the parcel"
    assert first.answer == (
        "A parcel of this group is with you after the days that the table below names, and in its box you find the "
        "paper of which you need for its return within 10 days, and a payment of its own."
    )
    assert second.question == "Size of the parcel – How much does it cost?"
    assert second.answer == "The price depends on the country:\n- Germany: free\n- Norway: 12 EUR"
    assert not any(word in out.read_text() for word in ("confidential", "1234567"))
    assert capsys.readouterr().err == ""


def test_a_row_that_each_page_has_is_no_footer_and_pages_without_text_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shown = [
        [*said(f"1.{number} Delivery by {number} bees\nNorway: it costs 12 EUR a parcel.")] for number in (1, 2, 3)
    ]
    (tmp_path / "a.pdf").write_bytes(pdf(*shown, []))
    assert read_files(monkeypatch, str(tmp_path), "--out", str(tmp_path / "faq.json")) == 0
    assert [each.answer for each in read_entries(tmp_path / "faq.json")] == ["Norway: it costs 12 EUR a parcel."] * 3
    assert capsys.readouterr().err == "left out: a.pdf: has no text on 1 of 4 pages: OCR is not done\n"


GOOD: Final[dict[str, bytes]] = {
    "a.pdf": pdf([("Shipping", 20, 700), *said(ENGLISH)]),
    "owner.pdf": protected(""),
    "a.docx": docx(paragraph("Shipping", "Heading1") + paragraph(ENGLISH)),
    "a.xlsx": xlsx(("Question", "Answer"), ("Shipping", ENGLISH)),
}


@pytest.mark.parametrize("name", GOOD)
def test_each_kind_of_document_gives_its_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(GOOD[name])
    out = tmp_path / "faq.json"
    assert read_files(monkeypatch, str(tmp_path), "--out", str(out)) == 0
    assert [(each.question, each.answer) for each in read_entries(out)] == [("Shipping", ENGLISH)]


def test_a_sites_documents_are_read_and_linked_to(
    read: Read,
    serve: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start = "https://shop.example/help/"
    unnamed = {"content-type": "application/octet-stream"}
    serve(
        {
            start: page("Help", "a.pdf", "b.docx", "c.pdf", "d.bin"),
            f"{start}a.pdf": (200, PDF_TYPE, pdf([("Refunds", 20, 700), *said("Within 5 days, to your card.")])),
            f"{start}b.docx": (
                200,
                unnamed,
                docx(paragraph("Returns", "Heading1") + paragraph("Within 30 days, in the box.")),
            ),
            f"{start}c.pdf": (200, PDF_TYPE, protected("secret")),
            f"{start}d.bin": (200, unnamed, b"x"),
        }
    )
    assert read(start) == (0, ["Help", "Refunds", "Returns"])
    assert [each.url for each in read_entries(tmp_path / "pages.json")][1:] == [f"{start}a.pdf", f"{start}b.docx"]
    assert sorted(capsys.readouterr().err.splitlines()) == [
        f"left out: {start}c.pdf: needs a password; save it without one",
        f"left out: {start}d.bin: is application/octet-stream, which is not read; save it as HTML, Markdown or CSV",
    ]
