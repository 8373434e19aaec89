"""`replyline edge`: a Replyline of its own near the customers, which asks its centre what it is not sure of.

It is `replyline up` with a link. The FAQ is the centre's, signed; where the centre is away at the start, the one that
was kept serves.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import jwt
import typer
from rich.console import Console

from ops.command_line import settings_of
from ops.operate.up import up
from shared.errors import SettingsError
from shared.process.clock import wire_unix_ms
from shared.process.lifetime import run_until_signal
from shared.settings import PREFIX, Settings
from shared.settings.credential_files import read_password
from shared.telemetry.logs import get_logger
from shared.versions.signature import read_trusted_keys
from workers.edge.centre_pages import CentreAway, CentrePages, FaqUnsigned
from workers.edge.sync import FAQ, FaqFiles

# Its history and its journal outlive it; what was said may give way to memory, what the centre does not know may not.
_REDIS: Final = ("appendonly yes", "maxmemory-policy volatile-lru")


def edge(
    centre: Annotated[str, typer.Option(help="the centre's gateways: wss://host/ws")],
    token_file: Annotated[Path, typer.Option(help="the edge's token (`replyline token --edge`)")],
    trusted_keys: Annotated[Path, typer.Option(help="folder of public keys (*.pem) that may sign the FAQ")],
    centre_http: Annotated[str, typer.Option(help="their HTTP port (none: the centre's host, over https)")] = "",
    stale_s: Annotated[
        float, typer.Option(min=1, help="s that the FAQ is sure without the centre's confirmation")
    ] = 300,
    quote: Annotated[
        bool, typer.Option("--quote", help="give the FAQ's own words where it is sure, no model's")
    ] = False,
    state: Annotated[Path, typer.Option(metavar="DIR", help="keeps the FAQ and the journal")] = Path(".run/edge"),
) -> None:
    """Answer near the customers: what the FAQ is sure of here, the rest by the centre, in time. Ctrl-C drains and ends
    it."""
    from ops.model.embeddings import with_prepared_embeddings
    from ops.model.terminal import ensure_engine

    link = {"centre": centre, "centre_http": centre_http, "token_file": token_file, "trusted_keys": trusted_keys}
    faq = state.resolve() / FAQ
    groups: dict[str, Any] = {"edge": {**link, "quote": quote}, "faq": {"path": faq, "stale_s": stale_s}}
    settings = with_prepared_embeddings(settings_of("edge", tenant=_tenant_of(token_file), **groups))
    ensure_engine(settings, Console(stderr=True))
    redis = (*_REDIS, f"dir {state.resolve()}")
    raise typer.Exit(run_until_signal(lambda stop: _run(settings, redis, stop)))


async def _run(settings: Settings, redis: tuple[str, ...], stop: asyncio.Event) -> None:
    """Get the FAQ, then run. Raises `SettingsError`, `ServiceError`."""
    await bring_faq(settings)
    await up(settings, stop, env=environment(settings), redis=redis)


async def bring_faq(settings: Settings) -> None:
    """Get the centre's FAQ, or else use the one that was kept. Raises `SettingsError` where there is none to be
    trusted."""
    path, keys = settings.faq.path, settings.edge.trusted_keys
    assert path is not None, "the settings check it"
    assert keys is not None, "the settings check it"
    files = FaqFiles(path.parent, read_trusted_keys(keys))
    files.open()
    pages, asked_unix_ms = CentrePages(settings.edge), wire_unix_ms()
    try:
        page = await pages.faq(files.version)
        if page.document is not None:
            files.take(page.document, page.signature)
        files.confirm(asked_unix_ms)
    except (CentreAway, FaqUnsigned) as error:
        if files.version is None:
            raise SettingsError(f"this edge has no FAQ yet, and needs the centre for it: {error}") from None
        get_logger().warning("centre_away", cause=str(error), action="the FAQ that was kept serves")
    finally:
        await pages.close()


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of an edge's gateway and worker."""
    edge, faq = settings.edge, settings.faq
    named = {f"EDGE__{name}": getattr(edge, name) for name in type(edge).model_fields} | {
        "FAQ__PATH": faq.path,
        "FAQ__STALE_S": faq.stale_s,
        "TENANT": settings.tenant,
    }
    return {f"{PREFIX}{name.upper()}": str(value) for name, value in named.items() if value is not None}


def _tenant_of(token_file: Path) -> str:
    """Return the tenant that a token is of. Raises `SettingsError`: the centre checks it, but this edge's conversations
    are that tenant's."""
    try:
        claims = jwt.decode(read_password(token_file), options={"verify_signature": False})
    except (ValueError, jwt.PyJWTError) as error:
        cause = f"is no token ({error})" if isinstance(error, jwt.PyJWTError) else error
        raise SettingsError(f"--token-file {token_file}: {cause}; make one with: replyline token --edge") from None
    if not claims.get("edge") or not claims.get("tenant"):
        raise SettingsError(f"--token-file {token_file}: not an edge's token; make one with: replyline token --edge")
    return str(claims["tenant"])
