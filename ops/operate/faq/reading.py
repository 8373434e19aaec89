"""Read files as FAQ entries, write them, and print what was left out."""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ops.command_line import settings_of
from ops.operate.faq.documents import Document
from ops.operate.faq.entries import Entries, encode, not_read
from ops.operate.faq.files import LeftOut, Pages, is_address
from ops.operate.faq.sections import read_once, sections_of, with_own_titles
from ops.operate.faq.site import Site
from shared.errors import SettingsError
from shared.faq.entries import FaqEntry, read_entries
from shared.faq.texts import shown
from shared.nouns import counted


def read_as_faq(named: Sequence[str], out: Path | None, most_pages: int) -> None:
    """Read files, folders and sites as FAQ entries, and write them to `out` atomically; without `out` only print them.

    Args:
        named: paths, and addresses of sites
        out: the FAQ file to write
        most_pages: the highest number of pages to fetch from one site

    Raises:
        SettingsError: a path or an address cannot be read, no entry was found, or `out` has entries that were not read
            from pages
    """
    if out is not None and out.suffix != ".json":
        raise SettingsError(f"--out {out}: name a file that ends in .json")
    out = None if out is None else out.resolve()
    before = _before(out)
    found = Pages()
    found.read([Path(each) for each in named if not is_address(each)], but=out)
    for address in filter(is_address, named):
        site = Site(address, most_pages)
        for fetched in site.fetch():
            found.add(fetched.url, fetched.kind, partial(_given, fetched.content))
        found.left_out += site.left_out
    own, repeated = read_once(with_own_titles(found.pages))
    entries = Entries(_others(out), before)
    for page in own:
        if (sections := sections_of(page)) or page.name in {each.page for each in found.left_out}:
            entries.add(sections)
        else:
            found.left_out.append(LeftOut(page.name, "", "has no text of its own; save it as a browser shows it"))
    kept = entries.finish()
    _print(kept, [*found.left_out, *entries.left_out], len(found.pages), repeated, found.ignored)
    if not kept:
        raise SettingsError(f"{', '.join(named)}: no entry; name pages with headings, or with questions and answers")
    if out is None:
        sys.stdout.write("nothing was written: name a file by --out\n")
        return
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".faq-") as folder:
        new = Path(folder) / out.name
        new.write_bytes(encode(kept))
        read_entries(new)
        new.replace(out)
    sys.stdout.write(f"{out}: written; use it by REPLYLINE_FAQ__PATH={out}, or a folder with it\n")


def _given(content: str | Document) -> str | Document:
    return content


def _before(out: Path | None) -> list[FaqEntry]:
    """Return the entries of the file `out`.

    Raises:
        SettingsError: an entry was not read from a page; writing `out` again would lose it
    """
    if out is None or not out.exists():
        return []
    entries = read_entries(out)
    if (entry := not_read(entries)) is not None:
        raise SettingsError(
            f"--out {out}: has the entry {shown(entry.id)}, which was read from no page; name another file"
        )
    return entries


def _others(out: Path | None) -> dict[str, list[FaqEntry]]:
    """Return the entries of the other FAQ files in the folder of `out`, by file name.

    They count because the whole folder is the FAQ, or may become it.

    Raises:
        SettingsError: the folder is the configured FAQ, and one of its JSON files is not an FAQ file
    """
    faq = settings_of("faq").faq.path
    is_faq = faq is not None and out is not None and faq.resolve() == out.parent
    if out is None or (faq is not None and not is_faq):
        return {}
    others = {}
    for file in sorted(each for each in out.parent.glob("*.json") if each.resolve() != out):
        try:
            others[file.name] = read_entries(file)
        except SettingsError:
            if is_faq:
                raise
    return others


def _print(
    kept: Sequence[FaqEntry], left_out: Sequence[LeftOut], pages: int, repeated: Sequence[str], ignored: Counter[str]
) -> None:
    for each in left_out:
        sys.stderr.write(f"left out: {each}\n")
    if repeated:
        sys.stderr.write(f"read once, since most pages have it: {', '.join(map(shown, repeated))}\n")
    if ignored:
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(ignored.items()))
        sys.stderr.write(f"no pages: {counted(ignored.total(), 'file')} ({kinds})\n")
    languages = Counter(entry.language for entry in kept)
    named = ", ".join(f"{number} {language}" for language, number in sorted(languages.items()))
    read = f"{counted(len(kept), 'entry', 'entries')} of {counted(pages, 'page')}"
    sys.stdout.write(f"{read}{f' ({named})' if named else ''}\n")
