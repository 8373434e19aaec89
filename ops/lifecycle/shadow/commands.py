"""`replyline shadow`: compare versions that answer customers' questions unseen (docs/lifecycle.md)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from ops.command_line import HtmlPath, JsonPath, run, settings_of
from ops.lifecycle.shadow.report import COLUMNS, figures, headline, page, rows
from ops.lifecycle.versions.writer import read_registry
from ops.measure.runner import markdown, write_html, write_json
from ops.paths import FILE_TO_READ
from shared.errors import ProtocolError, SettingsError
from shared.kafka import scan
from shared.settings import Settings
from shared.versions.registry import Registry
from shared.versions.store import open_version, stored
from shared.wire.codec import decode_observation
from shared.wire.fields import Revision
from shared.wire.lanes import SHADOW
from shared.wire.reports import Observation

shadow_app = typer.Typer(
    help="Versions that answer customers' questions; no customer sees their answers.", no_args_is_help=True
)


@shadow_app.command("report")
def report_(
    version: Annotated[str | None, typer.Option(help="id, alias or name (none: that of the last answer)")] = None,
    json_path: JsonPath = None,
    html_path: HtmlPath = None,
) -> None:
    """Show how a version's answers compare with those that customers had, by the records of the last two weeks."""
    settings = settings_of("shadow")
    registry, seen = asyncio.run(_observed(settings))
    revision = _revision(registry, version) if version else seen[-1].revision if seen else ""
    found = [each for each in seen if each.revision == revision]
    if not found:
        raise SettingsError(f"no shadow answer of {version or 'any version'}; run: replyline versions shadow 0.1")
    _tell(revision, found, json_path, html_path)


@shadow_app.command()
def replay(
    path: Annotated[Path, typer.Argument(metavar="FILE", callback=FILE_TO_READ, help="of `replyline record`")],
    version: Annotated[str, typer.Option(help="id or name in this machine's store, or a model's folder")],
    against: Annotated[str | None, typer.Option(help="the other one (none: REPLYLINE_MODEL__DIR)")] = None,
    json_path: JsonPath = None,
    html_path: HtmlPath = None,
) -> None:
    """Ask a recording of two versions on this machine, without Kafka, and show how their answers compare."""
    from ops.lifecycle.shadow.replay import replay as run_replay

    settings = settings_of("shadow")
    models = _folder(settings, version), settings.model.dir if against is None else _folder(settings, against)

    async def work() -> None:
        seen = await run_replay(path, *models, settings, Console(stderr=True))
        _tell(version, seen, json_path, html_path)

    run(work)


def _folder(settings: Settings, version: str) -> Path:
    """Return the folder of a version. Raises `VersionError`."""
    if Path(version).is_dir():
        return Path(version)
    return open_version(settings.model, _revision(stored(settings.model), version)).path


def _revision(registry: Registry, name: str) -> Revision:
    """Return the id of a version; a name that the registry lacks may be a model's revision."""
    version = registry.find(name)
    return name if version is None else version.id


async def _observed(settings: Settings) -> tuple[Registry, list[Observation]]:
    """Return the registry, and the shadows' answers. Raises `BrokerUnavailable`."""
    registry, seen = await read_registry(settings.kafka), list[Observation]()
    async for kept in scan(settings.kafka, settings.kafka.topics.observations):
        try:
            seen.append(decode_observation(kept.record.value))
        except ProtocolError:
            continue
    return registry, [each for each in seen if each.lane == SHADOW]


def _tell(revision: str, seen: Sequence[Observation], json_path: Path | None, html_path: Path | None) -> None:
    found = figures(revision, seen)
    for name, figure in headline(found).items():
        typer.echo(f"{name}: {figure}")
    typer.echo(markdown(COLUMNS, rows(found)))
    write_json(json_path, {**msgspec.structs.asdict(found), "answers": seen})
    if html_path is not None:
        write_html(html_path, page(found, seen), Console(stderr=True))
