"""`replyline edge`: a Replyline near the customers, which asks its centre the questions that it cannot answer for sure.

It is `replyline up` with a link to the centre. Its FAQ is the centre's, signed; if the centre is unavailable at the
start, the stored one is used.
"""

import asyncio
import fcntl
from pathlib import Path
from typing import IO, Annotated, Any, Final

import jwt
import typer
from rich.console import Console

from ops.command_line import settings_of
from ops.operate.up import check_ports, up
from ops.paths import FILE_TO_READ, FOLDER_TO_READ, FOLDER_TO_WRITE
from shared.errors import SettingsError
from shared.process.clock import wire_unix_ms
from shared.process.lifetime import run_until_signal
from shared.settings import PREFIX, Settings
from shared.settings.credential_files import read_password
from shared.telemetry.logs import get_logger
from shared.versions.signature import read_trusted_keys
from workers.edge.centre_pages import CentreAway, CentrePages, FaqUnsigned
from workers.edge.sync import FAQ, FaqFiles

# The history and the journal survive a restart. Conversations may be evicted when memory is short, but not entries that
# the centre does not have yet.
_REDIS: Final = ("appendonly yes", "maxmemory-policy volatile-lru")


def edge(
    centre: Annotated[str, typer.Option(help="WebSocket address of the centre's gateways: wss://host/ws")],
    token_file: Annotated[
        Path, typer.Option(callback=FILE_TO_READ, help="the edge's token (`replyline token --edge`)")
    ],
    trusted_keys: Annotated[
        Path, typer.Option(callback=FOLDER_TO_READ, help="folder of public keys (*.pem) that may sign the FAQ")
    ],
    centre_http: Annotated[
        str, typer.Option(help="HTTP address of the centre (default: https on the centre's host)")
    ] = "",
    stale_s: Annotated[
        float, typer.Option(min=1, max=86_400, help="how long the FAQ is used without the centre's confirmation, in s")
    ] = 300,
    quote: Annotated[
        bool, typer.Option("--quote", help="quote the FAQ if it is sure, instead of using a model")
    ] = False,
    state: Annotated[
        Path, typer.Option(metavar="DIR", callback=FOLDER_TO_WRITE, help="folder of the FAQ and the journal")
    ] = Path(".run/edge"),
) -> None:
    """Answer near the customers: from the FAQ if it is sure, otherwise through the centre, within the deadline. Ctrl-C
    drains and stops it."""
    from ops.model.embeddings import with_prepared_embeddings
    from ops.model.terminal import ensure_engine

    link = {"centre": centre, "centre_http": centre_http, "token_file": token_file, "trusted_keys": trusted_keys}
    faq = state.resolve() / FAQ
    groups: dict[str, Any] = {"edge": {**link, "quote": quote}, "faq": {"path": faq, "stale_s": stale_s}}
    settings = with_prepared_embeddings(settings_of("edge", tenant=_tenant_of(token_file), **groups))
    check_ports(settings.gateway, command_at)  # before the model is prepared, which takes minutes
    ensure_engine(settings, Console(stderr=True))
    redis = (*_REDIS, f"dir {state.resolve()}")
    with lock_state(state, settings.tenant):
        raise typer.Exit(run_until_signal(lambda stop: _run(settings, redis, stop)))


def command_at(port: int) -> str:
    """Return how to start an edge on a port."""
    return f"{PREFIX}GATEWAY__PORT={port} replyline edge"


def lock_state(state: Path, tenant: str) -> IO[str]:
    """Return the folder's locked file, to be closed at the end: two edges in one folder would spoil its journal, and a
    journal is sent as the turns of the token's tenant. Raises `SettingsError`."""
    state.mkdir(exist_ok=True)
    file = (state / "tenant").open("a+", encoding="utf-8")
    fault = ""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fault = "another edge uses it"
    else:
        file.seek(0)
        owner = file.read()
        if owner not in {"", tenant}:
            fault = f"its conversations are of tenant {owner}, and the token is of {tenant}"
    if fault:
        file.close()
        raise SettingsError(f"--state {state}: {fault}; name another folder")
    file.write("" if owner else tenant)
    file.flush()
    return file


async def _run(settings: Settings, redis: tuple[str, ...], stop: asyncio.Event) -> None:
    """Fetch the FAQ, then run. Raises `SettingsError`, `ServiceError`."""
    await bring_faq(settings)
    await up(settings, stop, env=environment(settings), redis=redis)


async def bring_faq(settings: Settings) -> None:
    """Fetch the centre's FAQ, or use the stored one. Raises `SettingsError` if there is no trusted FAQ."""
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
            remedy = "start it again when the centre serves its FAQ, or correct --centre-http"
            raise SettingsError(f"this edge has no FAQ yet, and needs the centre's: {error}; {remedy}") from None
        get_logger().warning("centre_away", cause=str(error), action="the stored FAQ is used")
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
    """Return a token's tenant. The centre verifies the token, but this edge's conversations belong to that tenant.
    Raises `SettingsError`."""
    try:
        claims = jwt.decode(read_password(token_file), options={"verify_signature": False})
    except (ValueError, jwt.PyJWTError) as error:
        cause = f"is not a token ({error})" if isinstance(error, jwt.PyJWTError) else error
        raise SettingsError(f"--token-file {token_file}: {cause}; make one with: replyline token --edge") from None
    if not claims.get("edge") or not claims.get("tenant"):
        raise SettingsError(f"--token-file {token_file}: not an edge's token; make one with: replyline token --edge")
    return str(claims["tenant"])
