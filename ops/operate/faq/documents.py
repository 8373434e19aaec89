"""Read PDF, Word and spreadsheet files as HTML and CSV, in a child process that is limited in time and memory."""

import csv
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from shared.process.extras import missing_extra
from shared.process.modules import module_command

MOST_MIB: Final = 50
MOST_TEXT_MIB: Final = 16
KINDS: Final = (".pdf", ".docx", ".xlsx", ".xls", ".ods")
_SECONDS: Final = 60
_MEMORY_BYTES: Final = 2 << 30
_UNPACKED_BYTES: Final = 256 << 20
_STYLES: Final = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => h2:fresh"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A document, or a sheet with its name, as the text of a file with the suffix `kind`."""

    kind: str
    text: str
    sheet: str = ""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document's parts, a note on what has no text, and the reason and remedy if it was not read ("" if it was)."""

    parts: list[Part] = []
    note: str = ""
    fault: str = ""


def open_document(kind: str, data: bytes) -> Document:
    """Return a document with the suffix `kind`, one of `KINDS`."""
    child = module_command("ops.operate.faq.documents", kind)
    try:
        ran = subprocess.run(child, input=data, capture_output=True, timeout=_SECONDS, check=False)
        return msgspec.json.decode(ran.stdout, type=Document)
    except subprocess.TimeoutExpired:
        return Document(fault=f"takes longer than {_SECONDS} s; split it")
    except msgspec.DecodeError:
        return Document(fault=f"cannot be read within {_MEMORY_BYTES >> 30} GiB of memory; split it")


def _read(kind: str, data: bytes) -> Document:
    try:
        return _sendable(_READERS[kind](data))
    except ModuleNotFoundError as error:
        if (line := missing_extra(error)) is None:
            raise
        return Document(fault=line)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged files raise what their readers' authors did not think of
        return Document(fault=" ".join(str(error).split()) if type(error) is ValueError else _damaged(kind, error))


def _sendable(document: Document) -> Document:
    """Return a document whose texts are Unicode: a PDF may name half a character. Raises ValueError for a long one."""
    parts = [
        msgspec.structs.replace(part, text=part.text.encode("utf-8", "replace").decode()) for part in document.parts
    ]
    if (chars := sum(len(part.text) for part in parts)) > MOST_TEXT_MIB << 20:
        raise ValueError(f"has {chars >> 20:,} MiB of text, the most is {MOST_TEXT_MIB}; split it")
    return msgspec.structs.replace(document, parts=parts)


def _damaged(kind: str, error: Exception) -> str:
    return f"is a damaged {kind}: {' '.join(str(error).split())[:100] or type(error).__name__}; save it again"


def _read_pdf(data: bytes) -> Document:
    from ops.operate.faq.pdf import read_pdf

    html, note = read_pdf(data)
    return Document(parts=[Part(kind=".html", text=html)], note=note)


def _read_docx(data: bytes) -> Document:
    import mammoth

    _check_packed(data)
    no_image = mammoth.images.img_element(lambda _: {})
    html = mammoth.convert_to_html(io.BytesIO(data), style_map=_STYLES, convert_image=no_image).value
    return Document(parts=[Part(kind=".html", text=html)])


def _read_sheets(data: bytes) -> Document:
    import python_calamine

    if zipfile.is_zipfile(io.BytesIO(data)):
        _check_packed(data)
    book = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    parts = []
    for name in book.sheet_names:
        text = io.StringIO(newline="")
        rows = book.get_sheet_by_name(name).to_python()
        csv.writer(text).writerows([_cell(cell) for cell in row] for row in rows)
        if rows:
            parts.append(Part(kind=".csv", text=text.getvalue(), sheet=name))
    return Document(parts=parts)


def _cell(value: object) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _check_packed(data: bytes) -> None:
    """Raise ValueError for a packed file that is far larger when unpacked."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        unpacked = sum(each.file_size for each in packed.infolist())
    if unpacked > _UNPACKED_BYTES:
        raise ValueError(f"unpacks to {unpacked >> 20:,} MiB, the most is {_UNPACKED_BYTES >> 20}; save it again")


_READERS: Final[dict[str, Callable[[bytes], Document]]] = {
    ".pdf": _read_pdf,
    ".docx": _read_docx,
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _read_sheets),
}


def _limit() -> None:
    with suppress(ImportError, ValueError, OSError):  # no Unix, or one without this limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))


if __name__ == "__main__":
    import logging

    logging.disable()
    _limit()
    sys.stdout.buffer.write(msgspec.json.encode(_read(sys.argv[1], sys.stdin.buffer.read())))
