"""`replyline incidents`: list earlier incidents and what helped (`replyline diagnose --keep` stores one)."""

import getpass
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from ops.operate.incidents.incident import Incident, Note, nearest
from ops.operate.incidents.shelf import Shelf
from ops.operate.letters import printable, when
from ops.operate.listing import show_table
from ops.paths import FOLDER_TO_READ
from shared.process.clock import now_unix_ms

incidents_app = typer.Typer(help="List earlier incidents, and find them by their symptoms.", no_args_is_help=True)

Folder = Annotated[
    Path,
    typer.Option(
        "--incidents", metavar="FOLDER", callback=FOLDER_TO_READ, help="folder of the incidents, one JSON file each"
    ),
]
DEFAULT_FOLDER: Final = Path("incidents")
Named = Annotated[str, typer.Argument(metavar="ID", help="id as shown by `list`, or its beginning")]

_ALIKE: Final = 0.3
_MOST_ALIKE: Final = 3


@incidents_app.command("list")
def list_(folder: Folder = DEFAULT_FOLDER) -> None:
    """List what went wrong and when, with the last note; the newest comes last."""
    rows = [
        [each.id, when(each.unix_ms), ", ".join(each.found), each.notes[-1].text if each.notes else ""]
        for each in Shelf(folder).all()
    ]
    if rows:
        show_table(("id", "when", "causes", "note"), rows, folds={"causes", "note"})
    else:
        typer.echo(f"no incidents in the folder {folder}")


@incidents_app.command()
def show(name: Named, folder: Folder = DEFAULT_FOLDER) -> None:
    """Print an incident: its evidence, its notes, and similar incidents."""
    shelf = Shelf(folder)
    incident = shelf.find(name)
    typer.echo(f"{incident.id}, {when(incident.unix_ms)}")
    for cause, evidence in incident.found.items():
        typer.echo(f"{cause}:")
        for line in evidence:
            typer.echo(f"  {printable(line)}")
    for note in incident.notes:
        typer.echo(f"{when(note.unix_ms)} {printable(note.author)}: {printable(note.text)}")
    for line in seen_before(incident.found, [each for each in shelf.all() if each.id != incident.id]):
        typer.echo(line)


@incidents_app.command()
def note(
    name: Named,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="the cause, and what helped")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Add a note with what helped. It is shown when a similar incident occurs."""
    shelf = Shelf(folder)
    incident = shelf.find(name)
    added = Note(unix_ms=round(now_unix_ms()), author=getpass.getuser(), text=text.strip())
    shelf.keep(msgspec.structs.replace(incident, notes=(*incident.notes, added)))
    typer.echo(f"{incident.id}: noted")


def seen_before(found: Mapping[str, Sequence[str]], kept: Sequence[Incident]) -> list[str]:
    """Return a line for each similar incident, with what helped."""
    return [
        f"seen before: {each.id}, {alike:.0%} alike ({each.bottleneck})"
        + (f"; {printable(each.notes[-1].text)}" if each.notes else "; no note of what helped")
        for alike, each in nearest(found, kept, at_least=_ALIKE, limit=_MOST_ALIKE)
    ]
