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
_BY_PROXIES: Final = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})


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
        name = _shown(_utf_8(request.headers.get(NAME_HEADER, ""))) or "Agent"
        return Agent(tenant, name, name)
    identity = await http.exchanges.identify(http.asker(request))
    if not identity.agent:
        raise _not_allowed("this token is not an agent's; make one with: replyline token --agent")
    name = _shown(identity.name) or _shown(identity.subject) or "Agent"
    return Agent(identity.tenant, identity.subject, name)


def _check_local(request: Request) -> None:
    """Raise `ProtocolError` unless a program or the desk's own page on this machine has sent the request. The host is
    compared too, since another site's page may give its own name this machine's address."""
    peer = request.client.host if request.client is not None else ""
    host = request.headers.get("host", "")
    is_forwarded = any(name.startswith("x-forwarded") or name in _BY_PROXIES for name in request.headers)
    if not is_loopback(peer) or is_forwarded or not is_loopback(_name_of(host)):
        raise _not_allowed(
            "without token checks the desk is open to this machine only; set REPLYLINE_AUTH__SECRET_FILE or "
            "REPLYLINE_AUTH__JWKS, and use a token with role: agent"
        )
    origins = request.headers.getlist("origin")
    if any(origin not in {f"http://{host}", f"https://{host}"} for origin in origins):
        raise _not_allowed("pages of this origin may not use the desk")


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _utf_8(header: str) -> str:
    """Return a header as its sender wrote it; servers read each byte as a character."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _shown(name: str) -> str:
    return "".join(each for each in name.strip() if each.isprintable())[:_NAME_CHARS]


def _not_allowed(message: str) -> ProtocolError:
    return ProtocolError("not_an_agent", message, kind="authentication_error", param="token")
