"""Generate an AsyncAPI 3 document of the wire protocol from the Structs that encode it
(https://www.asyncapi.com/docs/reference).

`replyline schema` prints it. docs/asyncapi.json is its output, and a test checks that it is current.
"""

from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from shared.conversation.handoffs import Handoff
from shared.wire.cloud_events import LETTER_TYPE
from shared.wire.codec import JSON, MSGPACK
from shared.wire.messages import (
    Adopt,
    Cancel,
    ChatRequest,
    ClientMessage,
    Erase,
    Forgotten,
    PeopleMove,
    PeopleSaid,
    ReplyDelta,
    ReplyDone,
    ServerMessage,
)
from shared.wire.outcome import Message
from shared.wire.reports import WorkerReport
from shared.wire.topics import (
    BUCKETS,
    CE_ID,
    CE_SOURCE,
    CE_SPECVERSION,
    CE_TYPE,
    CONTENT_TYPE,
    DEAD_DETAIL,
    DEAD_ORIGIN,
    DEAD_REASON,
    TopicNames,
)

Document = dict[str, Any]

_KAFKA_MESSAGES: tuple[type[Message], ...] = (
    ChatRequest,
    ReplyDelta,
    ReplyDone,
    Cancel,
    Adopt,
    Erase,
    Forgotten,
    PeopleMove,
    PeopleSaid,
    Handoff,
    WorkerReport,
)
# The messages that other services write and read. Replies to gateways, and messages between processes, have no headers.
_CLOUD_EVENTS: tuple[type[Message], ...] = (ChatRequest, ReplyDelta, ReplyDone, Handoff)
_TEXT: Document = {"type": "string", "minLength": 1}


def asyncapi() -> Document:
    """Return the document, as plain JSON values in a stable order."""
    client, server = get_args(ClientMessage), get_args(ServerMessage)
    kinds = (*client, *server, *_KAFKA_MESSAGES)
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Replyline",
            "version": "1",
            "description": "Streaming chat answers: clients over WebSocket, services over Kafka. See docs/protocol.md.",
        },
        "defaultContentType": "application/msgpack",
        "channels": {"websocket": _websocket(client, server), **_topics()},
        "operations": _operations(client, server),
        "components": {
            "messages": {**{kind.__name__: _message(kind) for kind in kinds}, "DeadLetter": _dead_letter()},
            "schemas": dict(sorted(schemas.items())),
        },
    }


def render() -> str:
    return msgspec.json.format(msgspec.json.encode(asyncapi()), indent=2).decode() + "\n"


def _message(kind: type[Message]) -> Document:
    tag = kind.__struct_config__.tag
    headers = {"headers": _event_headers({"const": tag})} if kind in _CLOUD_EVENTS else {}
    return {"name": tag, **headers, "payload": {"$ref": f"#/components/schemas/{kind.__name__}"}}


def _event_headers(kind: Document) -> Document:
    """Return the headers of a CloudEvent in binary mode."""
    event = {CE_ID: _TEXT, CE_SOURCE: _TEXT, CE_SPECVERSION: {"const": "1.0"}, CE_TYPE: kind}
    return {"type": "object", "properties": {CONTENT_TYPE: {"enum": [MSGPACK, JSON]}, **event}}


def _dead_letter() -> Document:
    """Return the message of a dead letter: the record's original value, and headers that describe it."""
    headers = _event_headers(_TEXT)
    headers["properties"][CONTENT_TYPE] = _TEXT
    told = (DEAD_REASON, DEAD_DETAIL, DEAD_ORIGIN)
    headers |= {"properties": headers["properties"] | dict.fromkeys(told, _TEXT), "required": list(told)}
    return {"name": LETTER_TYPE, "headers": headers, "payload": {}}


def _websocket(client: Iterable[type[Message]], server: Iterable[type[Message]]) -> Document:
    return {
        "address": "/ws",
        "description": "Subprotocol chat.v1.json (text frames) or chat.v1.msgpack (binary frames).",
        "messages": _references((*client, *server)),
        "bindings": {"ws": {"method": "GET"}},
    }


def _topics() -> Document:
    names = TopicNames()
    requests = [names.inbox, *(names.requests(bucket) for bucket in BUCKETS)]
    replies = [names.replies, names.external_replies]
    return {
        **{topic: _topic(topic, (ChatRequest,)) for topic in requests},
        **{topic: _topic(topic, (ReplyDelta, ReplyDone)) for topic in replies},
        names.cancels: _topic(names.cancels, (Cancel, Adopt)),
        names.erasures: _topic(names.erasures, (Erase,)),
        names.forgotten: _topic(names.forgotten, (Forgotten,)),
        names.handoffs: _topic(names.handoffs, (Handoff,)),
        names.people: _topic(names.people, (PeopleMove, PeopleSaid, Erase)),
        names.workers: _topic(names.workers, (WorkerReport,)),
        names.dead_letters: _topic(names.dead_letters, ()) | {"messages": _named("DeadLetter")},
    }


def _topic(name: str, kinds: Iterable[type[Message]]) -> Document:
    return {"address": name, "messages": _references(kinds), "bindings": {"kafka": {"topic": name}}}


def _references(kinds: Iterable[type[Message]]) -> Document:
    return _named(*(kind.__name__ for kind in kinds))


def _named(*names: str) -> Document:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _operations(client: Iterable[type[Message]], server: Iterable[type[Message]]) -> Document:
    """Return the operations from the gateway's side of the socket and from a service's side of the topics."""
    names = TopicNames()
    return {
        "receiveFromClient": _operation("receive", "websocket", client),
        "sendToClient": _operation("send", "websocket", server),
        "ask": _operation("send", names.inbox, (ChatRequest,)),
        "takeOver": _operation("receive", names.handoffs, (Handoff,)),
        "readReplies": _operation("receive", names.external_replies, (ReplyDelta, ReplyDone)),
    }


def _operation(action: str, channel: str, kinds: Iterable[type[Message]]) -> Document:
    path = f"#/channels/{channel}"
    return {
        "action": action,
        "channel": {"$ref": path},
        "messages": [{"$ref": f"{path}/messages/{kind.__name__}"} for kind in kinds],
    }
