"""`replyline versions`: list the registry, and move it (docs/lifecycle.md)."""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from ops.command_line import settings_of
from ops.lifecycle.versions import moves, pages
from ops.lifecycle.versions.adding import About, add
from ops.lifecycle.versions.signing import sign, write_keys
from ops.lifecycle.versions.using import holders, load, use
from ops.lifecycle.versions.writer import RegistryWriter, read_registry, warn_unreadable
from ops.operate.letters import as_json
from ops.operate.listing import show_table
from ops.paths import FILE_TO_READ, FILE_TO_WRITE, FOLDER_TO_READ, PATH_TO_READ
from shared.errors import ModelError, SettingsError
from shared.nouns import counted
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.versions.registry import Added
from shared.versions.state import State
from shared.versions.store import open_version
from shared.wire.lanes import CHAMPION, Lane

versions_app = typer.Typer(help="The registry of model versions: add, check, use, roll back.", no_args_is_help=True)

_FOLDS: Final = {"author", "aliases", "model", "what", "reason", "numbers"}
_DIGEST: Final = re.compile(r"[0-9a-f]{16}")

Name = Annotated[str, typer.Argument(metavar="VERSION", help="id (6 digits or more), alias or name (the newest)")]
Author = Annotated[str | None, typer.Option(help="who does it (none: your user's name)")]
Reason = Annotated[str, typer.Option(help="why, for `log`")]
OfLane = Annotated[Lane, typer.Option(help="the lane whose workers this is for")]
Wait = Annotated[float, typer.Option("--wait-s", min=3.0, max=3_600.0, help="for the workers to load it")]


@versions_app.command()
def keygen(
    private: Annotated[
        Path,
        typer.Argument(metavar="PRIVATE.pem", callback=FILE_TO_WRITE, help="the private key; keep it off the servers"),
    ],
    public: Annotated[
        Path,
        typer.Argument(
            metavar="PUBLIC.pem",
            callback=FILE_TO_WRITE,
            help="the public key, for a folder of REPLYLINE_MODEL__TRUSTED_KEYS",
        ),
    ],
) -> None:
    """Make a key pair to sign models with."""
    if private.resolve() == public.resolve():
        raise typer.BadParameter(f"both keys would be in {private}; name two files")
    _tell(f"key {write_keys(private, public)}: {private}, {public}")


@versions_app.command("sign")
def sign_(
    folder: Annotated[Path, typer.Argument(callback=FOLDER_TO_READ, help="of a version in the store")],
    key: Annotated[Path, typer.Option(metavar="FILE", callback=FILE_TO_READ, help="the private key")],
) -> None:
    """Sign a stored version's document, which names the sha256 of the manifest and of the golden prompts."""
    _tell(f"{folder} is signed by key {sign(folder, key)}")


@versions_app.command("add")
def add_(
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", callback=PATH_TO_READ, help="a prepared model, or an OCI layout of one")
    ],
    name: Annotated[str | None, typer.Option(help="for people (none: the model's)")] = None,
    system_prompt_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", callback=FILE_TO_READ, help="text that begins its prompts (none: the worker's own)"
        ),
    ] = None,
    base_revision: Annotated[
        str | None, typer.Option(metavar="SHA256", help="of the model that its adapter was merged into")
    ] = None,
    notes: Annotated[str, typer.Option(help="for its card")] = "",
    trained_on: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=FILE_TO_READ,
            help="people.txt of `replyline learn export`: the conversations it learned from",
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=FILE_TO_READ, help="the private key that signs it")
    ] = None,
    author: Author = None,
) -> None:
    """Put a copy of a model into the store and the registry. It gets no traffic yet."""
    about = About(
        name=name,
        system_prompt=_text_of("--system-prompt-file", system_prompt_file),
        base_revision=base_revision,
        notes=notes,
        trained_on=_people_of("--trained-on", trained_on),
    )
    asyncio.run(_add(settings_of("versions"), source, about, author, key))


@versions_app.command("list")
def list_() -> None:
    """List the versions, with what each is and whether it may have traffic."""
    settings = settings_of("versions")
    registry = asyncio.run(read_registry(settings.kafka))
    warn_unreadable(registry)
    rows = pages.version_rows(registry, wire_unix_ms())
    _show(pages.LISTED, rows, "no version yet; add one: replyline versions add FOLDER")


@versions_app.command()
def show(name: Name) -> None:
    """Print a version's document, its check, and how it lies in this machine's store, as JSON."""
    settings = settings_of("versions")
    registry = asyncio.run(read_registry(settings.kafka))
    warn_unreadable(registry)
    version = moves.found(registry, name)
    try:
        here = str(open_version(settings.model, version.id, expected=version, verify=False).path)
    except ModelError as error:
        here = str(error)
    page = pages.version_page(registry, version.id, wire_unix_ms())
    sys.stdout.write(as_json(page | {"here": here}, indent=2) + "\n")


@versions_app.command("load")
def load_(name: Name, lane: OfLane = CHAMPION, wait_s: Wait = 300.0, author: Author = None) -> None:
    """Have a lane's workers load a version in addition to the one that they serve."""
    asyncio.run(_load(settings_of("versions"), name, lane, wait_s, author))


@versions_app.command()
def unload(lane: OfLane = CHAMPION, reason: Reason = "by hand", author: Author = None) -> None:
    """Take back `load`: the lane's workers keep the version that they serve."""
    asyncio.run(_move(settings_of("versions"), partial(moves.unload, lane=lane), reason, author))


@versions_app.command("close")
def close_(
    lane: Annotated[Lane, typer.Option(help="light, cpu or shadow")],
    reason: Reason = "by hand",
    author: Author = None,
) -> None:
    """Take a lane's version away: its workers pass their requests on to the champion."""
    asyncio.run(_move(settings_of("versions"), partial(moves.close, lane=lane), reason, author))


@versions_app.command("use")
def use_(
    name: Name,
    lane: OfLane = CHAMPION,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="from when on: +10m, 2026-11-26T05:00:00Z")] = None,
    reason: Reason = "by hand",
    wait_s: Wait = 300.0,
    author: Author = None,
) -> None:
    """Have a lane's workers load a version, and serve it once all of them have."""
    at_unix_ms = 0 if at is None else moves.parse_moment(at, wire_unix_ms())
    asyncio.run(_use(settings_of("versions"), name, lane, at_unix_ms, reason, wait_s, author))


@versions_app.command()
def rollback(
    champion: Annotated[bool, typer.Option("--champion", help="return to `previous` also during a rollout")] = False,
    again: Annotated[bool, typer.Option("--again", help="also within ten minutes of a rollback")] = False,
    over_epoch: Annotated[
        int | None, typer.Option(min=1, help="only write the state in force behind this corrupt move")
    ] = None,
    reason: Reason = "by hand",
    author: Author = None,
) -> None:
    """Take off the canary, or a move that waits for its time; without either, return to the previous champion and say
    which workers still hold it."""
    if over_epoch and (champion or again):
        raise typer.BadParameter("--over-epoch changes no alias; type it alone, then: replyline versions rollback")
    rolled_back = partial(moves.rollback, champion=champion, again=again)
    to = partial(moves.pass_over, unreadable=over_epoch) if over_epoch else rolled_back
    asyncio.run(_roll_back(settings_of("versions"), to, reason, author, over_epoch or 0))


@versions_app.command()
def rung(
    to: Annotated[Literal["champion", "light", "cpu", "faq", "auto"], typer.Argument(help="auto: by the load")],
    reason: Reason = "by hand",
    author: Author = None,
) -> None:
    """Hold the ladder at a rung under any load; a move that waits for its time keeps waiting."""
    held = None if to == "auto" else to
    asyncio.run(_move(settings_of("versions"), partial(moves.hold, rung=held), reason, author, back=True))


@versions_app.command()
def shadow(
    share: Annotated[float, typer.Argument(min=0.0, max=1.0, help="of the conversations: 0.1")],
    reason: Reason = "by hand",
    author: Author = None,
) -> None:
    """Send a copy of the questions of a share of the conversations to the shadow lane; see: replyline shadow report."""
    asyncio.run(_move(settings_of("versions"), partial(moves.shadow, share=share), reason, author))


@versions_app.command()
def log() -> None:
    """Print every move of the registry: what changed, its author, reason and numbers."""
    registry = asyncio.run(read_registry(settings_of("versions").kafka))
    warn_unreadable(registry)
    _show(pages.LOGGED, pages.move_rows(registry), "nothing was moved yet")


def _show(titles: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    if rows:
        show_table(titles, rows, folds=_FOLDS)
    else:
        _tell(nothing)


async def _add(settings: Settings, source: Path, about: About, author: str | None, key: Path | None) -> None:
    async with RegistryWriter.opened(settings.kafka, author) as writer:
        stored = await asyncio.to_thread(add, settings, source, about, wire_unix_ms(), key_file=key)
        await writer.write(Added(version=stored.version, author=writer.author, signed_by=stored.signed_by))
    _tell(f"{stored.version.id}: {stored.path}; next: replyline versions check {stored.version.id}")


async def _load(settings: Settings, name: str, lane: Lane, wait_s: float, author: str | None) -> None:
    async with RegistryWriter.opened(settings.kafka, author) as writer:
        workers = await load(writer, settings.kafka, name, lane, wait_s, _tell)
    _tell(f"{counted(workers, 'worker')} of {lane} loaded {name}; next: replyline versions use {name} --lane {lane}")


async def _use(
    settings: Settings, name: str, lane: Lane, at_unix_ms: int, reason: str, wait_s: float, author: str | None
) -> None:
    async with RegistryWriter.opened(settings.kafka, author) as writer:
        before = writer.registry.state
        move = await use(
            writer, settings.kafka, name, lane, at_unix_ms=at_unix_ms, reason=reason, wait_s=wait_s, say=_tell
        )
    _tell_move(before, move.state)


async def _roll_back(settings: Settings, to: Callable[..., State], reason: str, author: str | None, over: int) -> None:
    before, after = await _move(settings, to, reason, author, over)
    champion = after.aliases.get(CHAMPION)
    if champion is not None and champion != before.aliases.get(CHAMPION):
        _tell(pages.held(champion, await holders(settings.kafka, CHAMPION, champion)))


async def _move(
    settings: Settings, to: Callable[..., State], reason: str, author: str | None, over: int = 0, *, back: bool = False
) -> tuple[State, State]:
    """Move to the state that `to` makes of the registry, unless it is the same; return the states before and after.
    `back`: a move that waits for its time keeps waiting."""
    async with RegistryWriter.opened(settings.kafka, author) as writer:
        now = wire_unix_ms()
        before = writer.registry.state_at(now) if back else writer.registry.state
        waiting = writer.registry.waiting(now) if back else None
        state = to(writer.registry, now_unix_ms=now)
        if not over and not any(pages.changes(before, state)):
            _tell(f"nothing changes: epoch {writer.registry.epoch} says so already")
            return before, before
        await writer.move(state, reason, over=over, waiting=waiting)
    _tell_move(before, state)
    return before, state


def _tell_move(before: State, after: State) -> None:
    _tell(f"epoch {after.epoch}: {'; '.join(pages.changes(before, after)) or 'the state in force, written again'}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _text_of(option: str, path: Path | None) -> str | None:
    """Return the text of a file that an option names. Raises `SettingsError` if it is not readable, or empty."""
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise SettingsError(f"{option} {path}: {error.strerror}; name a readable file") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{option} {path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    if not text:
        raise SettingsError(f"{option} {path}: is empty; write the text into it, or leave {option} out")
    return text


def _people_of(option: str, path: Path | None) -> tuple[str, ...]:
    """Return the conversations' digests in a file that an option names. Raises `SettingsError` for any other word: the
    version would not be named when that conversation is erased."""
    people = tuple((_text_of(option, path) or "").split())
    for word in people:
        if _DIGEST.fullmatch(word) is None:
            raise SettingsError(
                f"{option} {path}: {word[:40]!r} is no conversation; name people.txt of: replyline learn export"
            )
    return people
