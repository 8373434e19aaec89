"""`replyline faq`: read a shop's pages as an FAQ file, and sign the FAQ for edges."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ops.command_line import settings_of
from ops.paths import FILE_TO_READ, FILE_TO_WRITE, PATH_TO_READ
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH
from shared.nouns import counted
from shared.process.clock import wire_unix_ms
from shared.versions.faq_bundle import Bundle, sign_faq
from shared.versions.signature import key_id, read_private_key


def _pages(context: typer.Context, parameter: typer.CallbackParam, value: list[str]) -> list[str]:
    """Check that the paths can be read."""
    from ops.operate.faq.files import is_address

    PATH_TO_READ(context, parameter, [each for each in value if not is_address(each)])
    return value


faq_app = typer.Typer(help="Read a shop's pages as an FAQ; sign the FAQ for edges.", no_args_is_help=True)


@faq_app.command("read")
def read(
    pages: Annotated[
        list[str],
        typer.Argument(
            metavar="PAGES...",
            callback=_pages,
            help="Markdown, HTML, CSV and JSON files, folders with them, and addresses of a site's pages or sitemap",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=FILE_TO_WRITE, help="the FAQ file to write (without: only print)"),
    ] = None,
    most_pages: Annotated[int, typer.Option(min=1, max=100_000, help="pages to fetch of a site at most")] = 500,
    accept: Annotated[
        bool, typer.Option("--accept", help="write also if over a fifth of the entries read from sites has changed")
    ] = False,
    watch: Annotated[
        int | None,
        typer.Option(metavar="MINUTES", min=1, max=10_080, help="read again after this many minutes, until Ctrl-C"),
    ] = None,
) -> None:
    """Read a shop's pages as FAQ entries: each section and each question with its answer is one.

    Read again into the same file, a site is asked only for what has changed, and the text of a page that fails stays.
    """
    from ops.operate.faq.reading import read_as_faq, watch_as_faq

    if watch is None:
        read_as_faq(pages, out, most_pages, accept=accept)
    elif out is None:
        raise SettingsError("--watch: name a file to write by --out")
    else:
        watch_as_faq(pages, out, most_pages, accept=accept, minutes=watch)


@faq_app.command("review")
def review(
    draft: Annotated[
        Path, typer.Argument(metavar="FILE", callback=PATH_TO_READ, help="learned entries (`replyline faq read --out`)")
    ],
    into: Annotated[
        Path, typer.Option(metavar="FILE", callback=FILE_TO_WRITE, help="the FAQ file to publish into, which is served")
    ],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="the page's port on 127.0.0.1 (0: any free one)")] = 0,
) -> None:
    """Review learned entries on a page of this machine: accept, edit or drop each, and publish."""
    from ops.operate.faq.review_page import ReviewPage

    ReviewPage(draft, into, port).serve()


@faq_app.command("sign")
def sign(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            callback=FILE_TO_WRITE,
            help="the signed FAQ, for REPLYLINE_EDGE__SIGNED_FAQ of the gateways",
        ),
    ],
    key: Annotated[
        Path, typer.Option(metavar="FILE", callback=FILE_TO_READ, help="the private key (`replyline versions keygen`)")
    ],
    faq: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=PATH_TO_READ, help="an FAQ file or folder (default: the setting)"),
    ] = None,
) -> None:
    """Sign the FAQ as a new version. Edges use it within seconds, and accept no older one afterwards."""
    source = faq or settings_of("faq").faq.path or PACKAGED_PATH
    private = read_private_key(key)
    version = int(wire_unix_ms())
    if out.exists() and (before := Bundle.open(out).version) >= version:
        raise SettingsError(f"{out}: version {before} is newer than this machine's clock; correct the clock")
    bundle = sign_faq(source, private, version)
    bundle.write(out)
    entries, signed_by = counted(len(bundle.entries), "entry", "entries"), key_id(private.public_key())
    sys.stdout.write(f"{out}: version {version} of {source}, {entries}, signed by key {signed_by}\n")
