"""Generate TypeScript types of the messages between client and gateway from the Structs that encode them.

`replyline schema --typescript` prints them. gateway/widget/protocol.d.ts is its output, and a test checks that it is
current. A field that may be null may also be omitted.
"""

import json
from typing import Any, Final, get_args

import msgspec

from shared.wire.messages import ClientMessage, ServerMessage
from shared.wire.outcome import Message

_SIMPLE: Final = {"string": "string", "boolean": "boolean", "integer": "number", "number": "number"}


def render() -> str:
    """Return the file's text."""
    client, server = get_args(ClientMessage), get_args(ServerMessage)
    _, schemas = msgspec.json.schema_components((*client, *server), ref_template="{name}")
    return "\n".join(
        [
            "/** The wire's messages, made by `replyline schema --typescript`: do not edit. See docs/protocol.md. */",
            *(_declared(name, schema) for name, schema in sorted(schemas.items())),
            f"export type ClientMessage = {_union(client)};",
            f"export type ServerMessage = {_union(server)};",
            "",
        ]
    )


def _declared(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    fields = [
        f"  {field}{'' if field in required else '?'}: {_type(of)};" for field, of in schema["properties"].items()
    ]
    return "\n".join([f"export type {name} = {{", *fields, "};"])


def _union(kinds: tuple[type[Message], ...]) -> str:
    return " | ".join(kind.__name__ for kind in kinds)


def _type(schema: dict[str, Any]) -> str:
    """Return the type for a JSON Schema in msgspec's form."""
    if "$ref" in schema:
        return str(schema["$ref"])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_type(each) for each in schema["anyOf"] if each != {"type": "null"})
    if schema["type"] == "array":
        return f"Array<{_type(schema['items'])}>"
    if schema["type"] == "object":
        return f"Record<string, {_type(schema['additionalProperties'])}>"
    return _SIMPLE[schema["type"]]
