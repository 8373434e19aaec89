"""`replyline incidents`: what went wrong before, and what helped (`replyline diagnose --keep` keeps one)."""

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
from shared.process.clock import now_unix_ms

incidents_app = typer.Typer(help="What went wrong before, found again by its symptoms.", no_args_is_help=True)

Folder = Annotated[
    Path, typer.Option("--incidents", metavar="FOLDER", help="where incidents are kept, a JSON file each")
]
DEFAULT_FOLDER: Final = Path("incidents")
Named = Annotated[str, typer.Argument(metavar="ID", help="as `list` shows it, or how it begins")]

_ALIKE: Final = 0.3
_MOST_ALIKE: Final = 3


@incidents_app.command("list")
def list_(folder: Folder = DEFAULT_FOLDER) -> None:
    """Say what went wrong and when, the newest last, with the last note."""
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
    """Print an incident: its evidence, its notes, and those that were alike."""
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
    text: Annotated[str, typer.Argument(metavar="TEXT", help="what it was, and what helped")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Write beside an incident what helped: whoever has it again is shown it."""
    if not text.strip():
        raise typer.BadParameter("TEXT is empty; write what helped")
    shelf = Shelf(folder)
    incident = shelf.find(name)
    added = Note(unix_ms=round(now_unix_ms()), author=getpass.getuser(), text=text.strip())
    shelf.keep(msgspec.structs.replace(incident, notes=(*incident.notes, added)))
    typer.echo(f"{incident.id}: noted")


def seen_before(found: Mapping[str, Sequence[str]], kept: Sequence[Incident]) -> list[str]:
    """Return a line for each incident that was much like this one, with what helped."""
    return [
        f"seen before: {each.id}, {alike:.0%} alike ({each.bottleneck})"
        + (f"; {printable(each.notes[-1].text)}" if each.notes else "; nobody noted what helped")
        for alike, each in nearest(found, kept, at_least=_ALIKE, limit=_MOST_ALIKE)
    ]
