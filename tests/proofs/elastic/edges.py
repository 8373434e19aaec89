"""A centre that checks tokens, and an edge whose link the test controls: both are complete systems."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ops.lifecycle.versions.signing import write_keys
from ops.operate.edge import bring_faq, environment
from ops.operate.token import mint_token
from ops.operate.up import Addresses, EmbeddedSystem
from shared.client import AsyncReplyline, Response, ResponseDelta, ResponseDone
from shared.conversation.history import History
from shared.faq.entries import PACKAGED_PATH
from shared.settings import PREFIX, Settings
from shared.settings.auth import AuthSettings
from shared.settings.edge import EdgeSettings
from shared.settings.gateway import GatewaySettings
from shared.settings.redis import RedisSettings
from shared.versions.faq_bundle import sign_faq
from shared.versions.signature import read_private_key
from tests.proofs.elastic.slow_link import SlowLink

TENANT = "demo"
_COMMON = {
    "PROMISE__MAX_DEADLINE_MS": "600000",
    "REDIS__TIMEOUT_MS": "2000",
    "LOG__LEVEL": "warning",
}
_ANY_PORT = GatewaySettings(port=0, http_port=0, grpc_port=0)


@dataclass
class Centre:
    """`faq` is its FAQ file; `publish` writes and signs another."""

    folder: Path
    addresses: Addresses
    token: str

    @property
    def faq(self) -> Path:
        return self.folder / "faq.json"

    def sign(self) -> int:
        """Sign the FAQ as it is; return the version."""
        version = time.time_ns() // 1_000_000
        sign_faq(self.faq, read_private_key(self.folder / "private.pem"), version).write(self.folder / "faq.signed")
        return version

    def reword(self, entry_id: str, old: str, new: str) -> None:
        """Change an entry's English answer, and sign."""
        entries = json.loads(self.faq.read_bytes())
        (entry,) = [each for each in entries if each["id"] == entry_id]
        entry["en"]["answer"] = entry["en"]["answer"].replace(old, new)
        self.faq.write_text(json.dumps(entries))
        self.sign()


@dataclass
class EdgeNode:
    addresses: Addresses
    socket: SlowLink
    pages: SlowLink

    @property
    def links(self) -> tuple[SlowLink, SlowLink]:
        return self.socket, self.pages

    def cut(self) -> None:
        for link in self.links:
            link.cut()

    def mend(self) -> None:
        for link in self.links:
            link.mend()


@asynccontextmanager
async def centre_of(folder: Path, env: Mapping[str, str]) -> AsyncIterator[Centre]:
    """Start a centre whose FAQ is the demo shop's, in a folder that is there."""
    secret, token = folder / "secret", folder / "token"
    secret.write_text("a secret of thirty-two bytes or more")
    (folder / "keys").mkdir()
    write_keys(folder / "private.pem", folder / "keys" / "faq.pem")
    (folder / "faq.json").write_bytes(PACKAGED_PATH.read_bytes())
    auth = AuthSettings(secret_file=secret)
    now = time.time() * 1_000
    bearer = mint_token(auth, tenant=TENANT, subject="edge-1", ttl_s=3_600, now_unix_ms=now, edge=True)
    token.write_text(bearer)
    own = {"AUTH__SECRET_FILE": secret, "EDGE__SIGNED_FAQ": folder / "faq.signed", "FAQ__PATH": folder / "faq.json"}
    named = _environ(_COMMON | own | dict(env))
    with EmbeddedSystem(Settings(tenant=TENANT, auth=auth, gateway=_ANY_PORT), env=named, share_output=False) as system:
        centre = Centre(folder, await system.start(), bearer)
        centre.sign()
        yield centre


@asynccontextmanager
async def edge_of(
    centre: Centre, folder: Path, env: Mapping[str, str], *, stale_s: float = 300, quote: bool = True
) -> AsyncIterator[EdgeNode]:
    """Start an edge as `replyline edge` does."""
    port, http_port = centre.addresses.port, int(centre.addresses.openai.split(":")[2].split("/")[0])
    async with SlowLink(port) as socket, SlowLink(http_port) as pages:
        link = EdgeSettings(
            centre=f"ws://127.0.0.1:{socket.port}/ws",
            centre_http=f"http://127.0.0.1:{pages.port}",
            token_file=centre.folder / "token",
            trusted_keys=centre.folder / "keys",
            poll_s=0.5,
            quote=quote,
        )
        faq = Settings().faq.model_copy(update={"path": folder / "faq.json", "stale_s": stale_s})
        settings = Settings(tenant=TENANT, edge=link, faq=faq, gateway=_ANY_PORT)
        await bring_faq(settings)
        named = _environ(_COMMON | dict(env)) | environment(settings)
        with EmbeddedSystem(settings, env=named, share_output=False) as system:
            yield EdgeNode(await system.start(), socket, pages)


def history_at(addresses: Addresses, *, journal_of: str | None = None) -> History:
    return History(RedisSettings(url=addresses.redis, timeout_ms=2_000), journal_of=journal_of)


async def ask(
    url: str, text: str, *, token: str | None = None, session_id: str | None = None
) -> tuple[Response, float]:
    """Ask in a conversation; return the answer, and the seconds to its first text."""
    async with AsyncReplyline(url, token=token, session_id=session_id) as chat:
        begun_s, first_s = time.monotonic(), None
        async for event in chat.ask(text):
            if first_s is None and isinstance(event, ResponseDelta):
                first_s = time.monotonic() - begun_s
            response = event.response if isinstance(event, ResponseDone) else None
        assert response is not None
        return response, first_s or time.monotonic() - begun_s


def _environ(named: Mapping[str, object]) -> dict[str, str]:
    return {PREFIX + name: str(value) for name, value in named.items()}
