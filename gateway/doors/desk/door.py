"""The HTTP paths of the desk, where people answer customers (docs/channels.md).

Each request has a token with the claims `role: agent` and `tenant`, and reaches that tenant's conversations only. A
gateway that checks no tokens serves its own machine only.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response as HttpResponse

from gateway.doors.desk.agents import Agent, agent_of
from gateway.frontends.static import PAGE_HEADERS
from gateway.http.handlers import Answer, Handler, app_of
from gateway.http.requests import HttpRequests
from gateway.http.statuses import error_headers, status_of
from gateway.people.talks import Message, Talk
from gateway.serving.talking import Talking, unknown_talk
from shared.conversation.history import History, TurnsMissing
from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.wire.codec import field_error
from shared.wire.fields import Count, Identifier, Text
from shared.wire.lenient import UNREADABLE, Decode, lenient_json
from shared.wire.messages import TalkState
from shared.wire.outcome import ErrorDetail
from shared.wire.session_key import SessionKey

DESK: Final = "/desk"
MAX_TEXT_CHARS: Final = 8_000
_POLL_S: Final = 25.0
_TURNS: Final = 50
_FOREVER_MS: Final = float("inf")
_MOST_DIGITS: Final = 15  # of a number of the list
_PAGES: Final = {
    "/desk.css": ("desk.css", "text/css"),
    **{f"/{name}": (name, "text/javascript") for name in ("desk.js", "chat-dom.js", "replyline-browser.js")},
}
_encode: Final = msgspec.json.Encoder().encode


class Move(msgspec.Struct):
    """`epoch` is that of the conversation as the person sees it."""

    session_id: Identifier
    to: Literal["taken", "waiting", "bot", "resolved"]
    epoch: Count | None = None


class Say(msgspec.Struct):
    session_id: Identifier
    message_id: Identifier
    text: Annotated[Text, msgspec.Meta(max_length=MAX_TEXT_CHARS)]


class Chat(msgspec.Struct, omit_defaults=True):
    """A conversation in the list. `mine`: this person has it. `last` is the customer's last message."""

    session_id: str
    state: TalkState
    epoch: int
    since: int
    reason: str = ""
    language: str = ""
    name: str = ""
    mine: bool = False
    last: str = ""


class Chats(msgspec.Struct):
    """`next`: ask again after this number."""

    next: int
    chats: list[Chat]


class TurnShown(msgspec.Struct):
    user: str
    assistant: str
    source: str
    entries: tuple[str, ...]


class Whole(msgspec.Struct):
    chat: Chat
    turns: list[TurnShown]
    said: list[Message]


class Heard(msgspec.Struct):
    n: int


_move: Final = lenient_json(Move)
_say: Final = lenient_json(Say)


@dataclass(slots=True, kw_only=True)
class DeskDoor:
    """`tenant` is that of a gateway that checks no tokens."""

    http: HttpRequests
    talking: Talking
    history: History
    tenant: str

    def app(self) -> Starlette:
        paths = (
            ("GET", "/chats", self._chats),
            ("GET", "/chat", self._chat),
            ("POST", "/move", self._moved),
            ("POST", "/say", self._said),
            *(("GET", path, _page(file, kind)) for path, (file, kind) in _PAGES.items()),
        )
        return app_of(paths, "desk", _refusal)

    async def _agent(self, request: Request) -> Agent:
        """Return who asks. Raises `ProtocolError`."""
        return await agent_of(self.http, request, self.tenant)

    async def _chats(self, request: Request) -> Answer:
        """Return the tenant's open conversations, once there is a change after the number `after`."""
        agent = await self._agent(request)
        asked = request.query_params.get("after", "")
        if asked and not (asked.isascii() and asked.isdigit() and len(asked) <= _MOST_DIGITS):
            raise ProtocolError(
                "invalid_field", "after is the number that an earlier answer gave as next", param="after"
            )
        talks, log = self.talking.log.talks, self.talking.log
        after = int(asked) if asked else -1
        if after <= talks.position:  # a greater number is of a log before this one
            await log.wait(lambda: talks.changed.get(agent.tenant, 0) > after, _POLL_S)
        chats = [_shown(talk, agent) for talk in talks.of_tenant(agent.tenant)]
        return _json(Chats(next=talks.changed.get(agent.tenant, 0), chats=chats))

    async def _chat(self, request: Request) -> Answer:
        """Return one conversation: its turns, and what was said since a person was asked."""
        agent = await self._agent(request)
        talk = self._talk(SessionKey(agent.tenant, request.query_params.get("session_id", "")))
        try:
            turns = await self.history.turns(
                talk.session, limit=_TURNS, before_unix_ms=_FOREVER_MS, generation=talk.generation
            )
        except TurnsMissing as missing:
            turns = missing.found
        by_bot = [_turn(turn) for turn in turns if not turn.by_person]
        return _json(Whole(chat=_shown(talk, agent), turns=by_bot, said=list(talk.said)))

    async def _moved(self, request: Request) -> Answer:
        agent = await self._agent(request)
        move: Move = await self._body(request, _move, "move")
        talk = self._talk(SessionKey(agent.tenant, move.session_id))
        moved = await self.talking.move(talk, move.to, epoch=move.epoch, agent=agent.id, name=agent.name)
        return _json(_shown(moved, agent))

    async def _said(self, request: Request) -> Answer:
        agent = await self._agent(request)
        say: Say = await self._body(request, _say, "say")
        session = SessionKey(agent.tenant, say.session_id)
        return _json(Heard(await self.talking.say(session, say.message_id, agent.id, say.text)))

    def _talk(self, session: SessionKey) -> Talk:
        """Return a conversation into which a person was asked. Raises `ProtocolError`."""
        talk = self.talking.log.talks.find(session)
        if talk is None:
            raise unknown_talk(session.session_id)
        return talk

    async def _body(self, request: Request, decode: Decode, what: str) -> Any:
        data = await self.http.body(request)
        with self.http.charging_decoding(request, len(data)):
            try:
                return decode(data)
            except msgspec.ValidationError as error:
                raise field_error(error, what) from None
            except UNREADABLE as error:
                raise ProtocolError("bad_json", f"not valid JSON: {error}; send one object") from None


def _page(file: str, kind: str) -> Handler:
    """Return the handler of a file of the page, or of the widget."""
    folder = files("gateway")
    body = next(
        path.read_bytes()
        for path in (folder.joinpath("doors", "desk", "page", file), folder.joinpath("widget", file))
        if path.is_file()
    )

    async def page(_: Request) -> Answer:
        return HttpResponse(body, media_type=kind, headers=PAGE_HEADERS)

    return page


desk_page: Final = _page("index.html", "text/html")


def _shown(talk: Talk, agent: Agent) -> Chat:
    asked = next((each.text for each in reversed(talk.said) if each.by == "customer"), "")
    return Chat(
        session_id=talk.session.session_id,
        state=talk.state,
        epoch=talk.epoch,
        since=talk.asked_unix_ms if talk.state == "waiting" else talk.since_unix_ms,
        reason=talk.reason,
        language=talk.language,
        name=talk.name if talk.state == "taken" else "",
        mine=talk.state == "taken" and talk.agent == agent.id,
        last=asked[:200],
    )


def _turn(turn: Turn) -> TurnShown:
    return TurnShown(turn.user, turn.output_text, turn.source, tuple(each.id for each in turn.grounding))


def _json(value: msgspec.Struct) -> HttpResponse:
    return HttpResponse(_encode(value), media_type="application/json", headers={"cache-control": "no-store"})


def _refusal(error: ErrorDetail) -> HttpResponse:
    return HttpResponse(_encode({"error": error}), status_of(error), error_headers(error), "application/json")
