"""Find out which person uses the desk."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from gateway.http.requests import HttpRequests
from shared.errors import ProtocolError
from shared.settings.auth import is_loopback

_NAME_CHARS: Final = 64
NAME_HEADER: Final = "replyline-agent"


@dataclass(frozen=True, slots=True)
class Agent:
    """A person who answers for a tenant. `name` is what customers see."""

    tenant: str
    id: str
    name: str


async def agent_of(http: HttpRequests, request: Request, tenant: str) -> Agent:
    """Return the person who has sent a request: the token's subject. Without token checks it must come from this
    machine, and the header `Replyline-Agent` names the person. Raises `ProtocolError`."""
    http.exchanges.check_memory()
    if http.exchanges.gate is None:
        _check_local(request)
        name = _shown(request.headers.get(NAME_HEADER, "")) or "Agent"
        return Agent(tenant, name, name)
    identity = await http.exchanges.identify(http.asker(request))
    if not identity.agent:
        raise _not_allowed("this token is not an agent's; make one with: replyline token --agent")
    return Agent(identity.tenant, identity.subject, _shown(identity.name) or identity.subject)


def _check_local(request: Request) -> None:
    """Raise `ProtocolError` unless a program or the desk's own page on this machine has sent the request. The host is
    compared too, since another site's page may give its own name this machine's address."""
    peer = request.client.host if request.client is not None else ""
    host = urlsplit(f"//{request.headers.get('host', '')}")
    is_forwarded = any(name in request.headers for name in ("x-forwarded-for", "forwarded"))
    if not is_loopback(peer) or is_forwarded or not is_loopback(host.hostname or ""):
        raise _not_allowed(
            "without token checks the desk is open to this machine only; set REPLYLINE_AUTH__SECRET_FILE or "
            "REPLYLINE_AUTH__JWKS, and use a token with role: agent"
        )
    origins = request.headers.getlist("origin")
    if any(urlsplit(origin).netloc != host.netloc for origin in origins):
        raise _not_allowed("pages of this origin may not use the desk")


def _shown(name: str) -> str:
    return "".join(each for each in name.strip() if each.isprintable())[:_NAME_CHARS]


def _not_allowed(message: str) -> ProtocolError:
    return ProtocolError("not_an_agent", message, kind="authentication_error", param="token")
