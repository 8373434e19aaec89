"""Every wire document agrees with the Structs: names, fields, which are required, and allowed values."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from gateway.doors.openai.openapi import openapi
from ops.operate.typescript import render
from shared.wire.messages import ClientMessage, ServerMessage

ROOT = Path(__file__).parents[4]
_, SCHEMAS = msgspec.json.schema_components(
    (*get_args(ClientMessage), *get_args(ServerMessage)), ref_template="#/components/schemas/{name}"
)
PROTO = (ROOT / "gateway" / "doors" / "grpc" / "replyline" / "v1" / "replyline.proto").read_text()
SCALARS = {"int32": "integer", "int64": "integer", "double": "number", "bool": "boolean"}
TYPESCRIPT = (ROOT / "gateway" / "widget" / "protocol.d.ts").read_text()


@dataclass(frozen=True, slots=True)
class Field:
    """`type`: a basic one or a message's name; in brackets, a list of these."""

    type: str
    required: bool = True
    words: frozenset[str] = frozenset()


Messages = dict[str, dict[str, Field]]


def messages_of_structs() -> Messages:
    """A message's tag is its field `type`."""
    return {
        name: {
            field: replace(_of_json_schema(of), required=field in schema.get("required", ()))
            for field, of in schema["properties"].items()
        }
        for name, schema in SCHEMAS.items()
    }


def _of_json_schema(schema: dict[str, Any]) -> Field:
    match schema:
        case {"$ref": reference}:
            return Field(reference.rpartition("/")[2])
        case {"enum": words}:
            return Field("string", words=frozenset(words))
        case {"anyOf": either}:
            return _of_json_schema(next(each for each in either if each != {"type": "null"}))
        case {"type": "array", "items": items}:
            return Field(f"[{_of_json_schema(items).type}]")
        case _:
            return Field(schema["type"])


def of_typescript() -> Messages:
    """Read from the file's lines; an integer is a number there."""
    return {
        name: {
            field: replace(_of_ts_type(kind), required=not optional)
            for field, optional, kind in re.findall(r"^  (\w+)(\??): (.*);$", body, re.MULTILINE)
        }
        for name, body in re.findall(r"^export type (\w+) = \{\n(.*?)^\};$", TYPESCRIPT, re.MULTILINE | re.DOTALL)
    }


def _of_ts_type(kind: str) -> Field:
    words = frozenset(re.findall(r'"([^"]+)"', kind))
    listed = re.sub(r"^Array<(.*)>$", r"[\1]", re.sub(r"^Record<.*>$", "object", kind))
    return Field("string", words=words) if words else Field(listed)


def of_proto() -> Messages:
    """Read from the file's lines; fields without `optional` are `required`."""
    words = {
        name: frozenset(word.lower() for word in re.findall(rf"^  {_upper(name)}_(\w+) = [1-9]", body, re.MULTILINE))
        for name, body in re.findall(r"^enum (\w+) \{\n(.*?)^\}$", PROTO, re.MULTILINE | re.DOTALL)
    }

    def field(label: str, kind: str) -> Field:
        basic = "object" if kind.startswith("map") else SCALARS.get(kind, kind)
        found = Field("string", words=words[kind]) if kind in words else Field(basic)
        return replace(found, type=f"[{basic}]" if label == "repeated " else found.type, required=label != "optional ")

    line = r"^ +(optional |repeated )?(map<.*>|\w+) (\w+) = \d+;$"
    return {
        name: {each: field(label, kind) for label, kind, each in re.findall(line, body, re.MULTILINE)}
        for name, body in re.findall(r"^message (\w+) \{(\}|\n.*?^\})$", PROTO, re.MULTILINE | re.DOTALL)
    }


def _upper(name: str) -> str:
    return re.sub(r"(?<=.)(?=[A-Z])", "_", name).upper()


def test_the_asyncapi_document_matches_the_structs() -> None:
    told = json.loads((ROOT / "docs" / "asyncapi.json").read_text())["components"]["schemas"]
    assert {name: told.get(name) for name in SCHEMAS} == json.loads(msgspec.json.encode(SCHEMAS))


def test_the_typescript_matches_the_structs() -> None:
    """Generate it with: replyline schema --typescript > gateway/widget/protocol.d.ts"""
    numbers = {
        name: {field: replace(of, type=of.type.replace("integer", "number")) for field, of in fields.items()}
        for name, fields in messages_of_structs().items()
    }
    assert of_typescript() == numbers
    assert render() == TYPESCRIPT


def test_the_proto_matches_the_structs() -> None:
    """A tag is a field number in a `oneof`, HTTP/2 has its own pings, and a nullable field is optional or a list."""
    told, structs = of_proto(), messages_of_structs()
    for name in structs.keys() - {"Ping", "Pong"}:
        ours = {field: of for field, of in structs[name].items() if len(of.words) != 1}
        assert _without_required(told[name]) == _without_required(ours), name
        optional = {field for field, of in told[name].items() if not of.required or of.type.startswith("[")}
        null = {field for field, of in SCHEMAS[name]["properties"].items() if of.get("default", "") is None}
        assert null <= optional, name
        assert not any(ours[field].required for field in optional), name
    for either in ("ClientMessage", "ServerMessage"):
        kinds = get_args(globals()[either])
        tags = {kind.__struct_config__.tag.replace(".", "_"): Field(kind.__name__) for kind in kinds}
        assert told[either] == {tag: of for tag, of in tags.items() if tag not in {"ping", "pong"}}
    asked = told["RespondRequest"].keys() - {"session_id"} | {"type", "event_id"}
    assert asked == structs["ResponseCreate"].keys()


def _without_required(fields: dict[str, Field]) -> dict[str, Field]:
    return {name: replace(field, required=True) for name, field in fields.items()}


@pytest.mark.parametrize("body", ["ChatBody", "ResponsesBody"])
def test_shared_fields_have_the_same_bounds_in_the_openapi_document(body: str) -> None:
    asked, ours = openapi()["components"]["schemas"][body]["properties"], SCHEMAS["ResponseCreate"]["properties"]
    both = (asked.keys() & ours.keys()) - {"input", "instructions"}
    assert both >= {"temperature", "top_p", "metadata"}
    for name in both:
        assert [form for form in _forms(ours[name]) if form not in _forms(asked[name])] == [], name


def _forms(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the types that a field may have, without its default."""
    plain = {key: value for key, value in schema.items() if key != "default"}
    return [each for each in plain.get("anyOf", [plain]) if each != {"type": "null"}]


def test_source_and_status_have_the_same_values_in_the_openapi_document() -> None:
    ours, paths = messages_of_structs()["Response"], openapi()["paths"]

    def words(path: str, field: str) -> set[str]:
        answer = paths[path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        return set(answer["properties"][field]["enum"])

    assert words("/v1/chat/completions", "source") == ours["source"].words
    assert words("/v1/responses", "status") == ours["status"].words | {"in_progress"}
