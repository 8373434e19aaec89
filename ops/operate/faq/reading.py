"""Read files as FAQ entries, write them, and print what was left out."""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ops.command_line import settings_of
from ops.operate.faq.changes import changes_between
from ops.operate.faq.entries import Entries, encode, not_read
from ops.operate.faq.files import LeftOut, Pages, is_address
from ops.operate.faq.sections import read_once, sections_of, with_own_titles
from ops.operate.faq.source import Source
from ops.operate.faq.state import State
from shared.errors import ReplylineError, SettingsError
from shared.faq.entries import FaqEntry, read_entries
from shared.faq.texts import shown
from shared.nouns import counted
from shared.process.lifetime import fail


def watch_as_faq(named: Sequence[str], out: Path, most_pages: int, *, accept: bool, minutes: int) -> None:
    """Read pages as `read_as_faq` does, again after each `minutes`, until SIGINT. A reading that fails is one line."""
    with suppress(KeyboardInterrupt):
        while True:
            try:
                read_as_faq(named, out, most_pages, accept=accept)
            except (ReplylineError, OSError) as error:
                fail(str(error), 1)
            sys.stdout.flush()
            time.sleep(minutes * 60)


def read_as_faq(named: Sequence[str], out: Path | None, most_pages: int, *, accept: bool = False) -> None:
    """Read files, folders and sites as FAQ entries, and write them to `out` atomically; without `out` only print them.

    Args:
        named: paths, and addresses of sites
        out: the FAQ file to write
        most_pages: the highest number of pages to fetch from one site
        accept: also write it if more than a fifth of the earlier entries has changed or is gone

    Raises:
        SettingsError: a path or an address cannot be read, no entry was found, `out` has entries that were not read
            from pages, or too much has changed
    """
    if out is not None and out.suffix != ".json":
        raise SettingsError(f"--out {out}: name a file that ends in .json")
    out = None if out is None else out.resolve()
    before, state = _before(out), State.open(out)
    found, sites = Pages(), dict[str, Source]()
    found.read([Path(each) for each in named if not is_address(each)], but=out)
    for address in filter(is_address, named):
        sites[address] = Source(address, most_pages, state.sites.get(address, {}))
        sites[address].read(found)
    entries = Entries(others_beside(out), before, state.learned)
    _add_pages(found, entries, stale={page for site in sites.values() for page in site.stale})
    kept, left_out = entries.finish(), [*found.left_out, *entries.left_out]
    _print(kept, left_out, found)
    if not kept:
        raise SettingsError(f"{', '.join(named)}: no entry; name pages with headings, or with questions and answers")
    if out is None:
        sys.stdout.write("nothing was written: name a file by --out\n")
        return
    changes = changes_between(before, kept)
    sys.stdout.write(changes.lines)
    if sites and not accept and changes.are_many:
        raise SettingsError(f"{out}: not written, since {changes.share}; look at them, then add --accept")
    new = State(
        sites={address: site.kept for address, site in sites.items()},
        learned=entries.learned,
        left_out=list(map(str, left_out)),
        learned_before=state.learned,
    )
    _write(out, kept, new)


def _add_pages(found: Pages, entries: Entries, stale: set[str]) -> None:
    """Add the pages' sections, those of stale pages last."""
    own, repeated = read_once(with_own_titles(found.pages))
    if repeated:
        sys.stderr.write(f"read once, since most pages have it: {', '.join(map(shown, repeated))}\n")
    for page in sorted(own, key=lambda page: page.name in stale):
        if (sections := sections_of(page)) or page.name in {each.page for each in found.left_out}:
            entries.add(sections, is_stale=page.name in stale)
        else:
            found.left_out.append(LeftOut(page.name, "", "has no text of its own; save it as a browser shows it"))


def _write(out: Path, kept: Sequence[FaqEntry], state: State) -> None:
    content = encode(kept)
    is_same = out.exists() and out.read_bytes() == content
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".faq-") as folder:
        new = Path(folder) / out.name
        new.write_bytes(content)
        read_entries(new)
        state.write(Path(folder), out, is_same=is_same)
        if not is_same:
            new.replace(out)
    if is_same:
        sys.stdout.write(f"{out}: nothing has changed\n")
    else:
        sys.stdout.write(f"{out}: written; use it by REPLYLINE_FAQ__PATH={out}, or a folder with it\n")


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


def others_beside(out: Path | None) -> dict[str, list[FaqEntry]]:
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


def _print(kept: Sequence[FaqEntry], left_out: Sequence[LeftOut], found: Pages) -> None:
    for each in left_out:
        sys.stderr.write(f"left out: {each}\n")
    if found.ignored:
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(found.ignored.items()))
        sys.stderr.write(f"no pages: {counted(found.ignored.total(), 'file')} ({kinds})\n")
    languages = Counter(entry.language for entry in kept)
    named = ", ".join(f"{number} {language}" for language, number in sorted(languages.items()))
    read = f"{counted(len(kept), 'entry', 'entries')} of {counted(len(found.pages), 'page')}"
    sys.stdout.write(f"{read}{f' ({named})' if named else ''}\n")
