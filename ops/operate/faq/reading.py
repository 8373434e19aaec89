"""Read files as FAQ entries, write them, and print what was left out."""

import sys
from collections import Counter
from pathlib import Path

from ops.command_line import settings_of
from ops.operate.faq.entries import Entries, encode
from ops.operate.faq.files import LeftOut, read_pages
from ops.operate.faq.sections import sections_of, without_repeated
from shared.errors import SettingsError
from shared.faq.entries import MAX_ENTRIES, FaqEntry, entries_of, read_entries
from shared.faq.texts import shown
from shared.nouns import counted


def read_as_faq(pages: list[Path], out: Path | None) -> None:
    """Write the entries of files and folders to `out`, whole or not at all; without `out` only print what they are.
    Raises SettingsError for a path that is missing, or if there is no entry."""
    if out is not None and out.suffix != ".json":
        raise SettingsError(f"--out {out}: name a file that ends in .json")
    found, left_out = read_pages(pages, but=out)
    own, repeated = without_repeated(found)
    entries = Entries(_others(out), read_entries(out) if out is not None and out.is_file() else ())
    for page in own:
        entries.add(list(sections_of(page)))
    _print(entries, [*left_out, *entries.left_out], len(found), repeated)
    if not entries.kept:
        named = ", ".join(map(str, pages))
        raise SettingsError(f"{named}: no entry; name pages with headings, or with questions and answers")
    if len(entries.kept) > MAX_ENTRIES:
        raise SettingsError(f"{len(entries.kept)} entries; at most {MAX_ENTRIES}: name fewer pages")
    content = encode(entries.kept)
    entries_of(content, out or "the pages")
    if out is None:
        sys.stdout.write("nothing was written: name a file by --out\n")
    else:
        new = out.with_name(f"{out.name}.new")
        new.write_bytes(content)
        new.replace(out)
        sys.stdout.write(f"{out}: written; use it by REPLYLINE_FAQ__PATH={out}, or a folder with it\n")


def _others(out: Path | None) -> list[FaqEntry]:
    """Return the entries of the other files of the FAQ, if `out` lies in its folder."""
    path = settings_of("faq").faq.path
    if out is None or path is None or not path.is_dir() or path.resolve() != out.resolve().parent:
        return []
    return [entry for file in sorted(path.glob("*.json")) if file.name != out.name for entry in read_entries(file)]


def _print(entries: Entries, left_out: list[LeftOut], pages: int, repeated: list[str]) -> None:
    for each in left_out:
        sys.stderr.write(f"left out: {each}\n")
    if repeated:
        sys.stderr.write(f"left out of all pages, since most have it: {', '.join(map(shown, repeated))}\n")
    languages = Counter(entry.language for entry in entries.kept)
    named = ", ".join(f"{number} {language}" for language, number in sorted(languages.items()))
    read = f"{counted(len(entries.kept), 'entry', 'entries')} of {counted(pages, 'page')}"
    sys.stdout.write(f"{read}{f' ({named})' if named else ''}\n")
