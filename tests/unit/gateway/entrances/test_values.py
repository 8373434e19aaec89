"""At every entrance a value is read as it is meant, however a client writes it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from gateway.doors.ai_sdk.bodies import chat_question as ai_sdk_question
from gateway.doors.grpc.messages import client_message
from gateway.doors.grpc.messages import read as read_protobuf
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from gateway.doors.openai.bodies import chat_question, responses_question
from shared.wire import codec
from shared.wire.fields import MAX_INTEGER
from shared.wire.requests import names_in, open_request
from tests.unit.gateway.entrances.table import ENTRANCES, HALF, RECORD, each

ROLES = {"user": ("User", "human"), "assistant": ("ASSISTANT", "ai", "bot", "model"), "system": ("Developer",)}


@pytest.mark.parametrize(("role", "word"), [(role, word) for role, words in ROLES.items() for word in words])
def test_roles_of_other_interfaces_are_recognised(role: str, word: str) -> None:
    """At both doors that accept messages; an empty answer at their end is ignored."""

    def asked(word: str) -> tuple[Any, Any]:
        said = [{"role": word, "content": ["a"]}, {"role": "user", "content": [{"type": "Text", "text": "hi"}]}]
        messages = [*said, {"role": "assistant", "content": ""}]
        chat = chat_question(json.dumps({"model": "m", "messages": messages}).encode(), None)
        page = ai_sdk_question(json.dumps({"id": "c", "trigger": "submit-user-message", "messages": messages}).encode())
        return (chat.input, chat.turns, chat.system), (page.input, page.turns, page.system)

    assert asked(word) == asked(role)


@pytest.mark.parametrize("role", ["tool", "Tool", "FUNCTION", "Data"])
def test_a_programs_messages_are_left_out_in_any_case(role: str) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": role, "content": "{}"}, {"role": "user", "content": "b"}]
    chat = chat_question(json.dumps({"model": "m", "messages": messages}).encode(), None)
    response = responses_question(json.dumps({"model": "m", "input": messages}).encode(), None)
    page = ai_sdk_question(json.dumps({"id": "c", "messages": messages}).encode())
    assert {(read.input, read.ignored) for read in (chat, response, page)} == {("a\n\nb", (role.lower(),))}


def test_a_reply_partition_of_minus_1_means_none() -> None:
    """Kafka's clients write an unknown one like this."""
    assert open_request(json.dumps({**RECORD, "reply_partition": -1}).encode(), {}).reply_partition is None
    names = names_in(json.dumps({**RECORD, "reply_partition": -1, "input": ""}).encode(), {}, None)
    assert names is not None
    assert names.reply_partition is None


def test_a_field_named_like_an_envelope_is_none() -> None:
    read = open_request(json.dumps({**RECORD, "max_output_tokens": "75", "payload": {"a": 1}}).encode(), {})
    assert read == open_request(json.dumps(RECORD).encode(), {})


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "chat.request in JSON"])
@pytest.mark.parametrize(
    "parts",
    [
        ["it broke"],
        ["it ", "broke"],
        [{"type": "image_url", "image_url": {"url": "data:"}}, {"text": "it broke"}],
        [{"type": "input_text", "text": "it broke"}],
        {"type": "text", "text": "it broke"},
        [{"type": "text", "text": None}, {"type": "text", "text": {"value": "it broke", "annotations": []}}],
    ],
)
def test_a_text_may_come_in_parts(entrance: str, parts: Any) -> None:
    at = ENTRANCES[entrance]
    assert at.read({**at.message, "input": parts}) == at.read({**at.message, "input": "it broke"})
    turns: list[dict[str, Any]] = [{"user": "it broke", "assistant": "it broke"}]
    read = at.read({**at.message, "input": "hi", "turns": turns})
    assert at.read({**at.message, "input": "hi", "turns": [{"user": parts, "assistant": parts}]}) == read
    assert at.read({**at.message, "input": "hi", "turns": json.dumps(turns)}) == read


@pytest.mark.parametrize(
    "said",
    [
        ["it broke"],
        [{"type": "input_text", "text": "it broke"}],
        {"type": "text", "text": "it broke"},
        [{"type": "input_image", "image_url": "data:"}, {"text": "it broke"}],
        json.dumps([{"type": "Message", "role": "user", "content": "it broke"}]),
    ],
    ids=str,
)
def test_a_question_may_come_without_its_message(said: Any) -> None:
    """At both of OpenAI's interfaces."""
    chat = chat_question(json.dumps({"model": "m", "messages": said}).encode(), None)
    assert (chat.input, chat.turns) == ("it broke", ())
    if not isinstance(said, str):
        response = responses_question(json.dumps({"model": "m", "input": said}).encode(), None)
        assert (response.input, response.turns) == ("it broke", ())


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "chat completions", "responses"])
def test_metadata_of_any_form_is_text(entrance: str) -> None:
    at = ENTRANCES[entrance]
    whole = each(at.message, lambda value: "whole" if value == HALF else value)
    given: dict[str, Any] = {"shop": 7, "cart": {"size": 2}, "tags": ["a"]}
    read = at.read({**whole, "metadata": given})
    assert read.metadata == {"shop": "7", "cart": '{"size": 2}', "tags": '["a"]'}
    assert at.read({**whole, "metadata": json.dumps(given)}) == read


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
def test_harmless_parameters_are_read_as_they_are_meant(entrance: str) -> None:
    at = ENTRANCES[entrance]
    read = at.read({**at.message, "top_p": 0, "seed": -1, "max_output_tokens": -1, "temperature": 1})
    assert (read.seed, read.max_output_tokens, read.temperature) == (None, None, 1.0)
    assert 0 < read.top_p < 0.001


@pytest.mark.parametrize(
    ("cut", "text"), [(b"\xed\xa0\xbd", "\ufffd"), (b"\xe9\x80#", "\ufffd#"), (b"##\xff", "##\ufffd")]
)
def test_text_in_protobuf_that_is_not_utf_8_is_read_with_replacement_characters(cut: bytes, text: str) -> None:
    """C++ clients write any bytes."""
    said = v1.RespondRequest(input="###", stop=["###"], metadata={"a": "###"}, turns=[v1.Said(user="###")])
    read = read_protobuf(said.SerializeToString().replace(b"###", cut), v1.RespondRequest)
    assert (read["input"], read["stop"], read["metadata"]) == (text, [text], {"a": text})
    assert read["turns"][0]["user"] == text
    probe = health_pb2.HealthCheckRequest(service="###").SerializeToString().replace(b"###", cut)
    assert read_protobuf(probe, health_pb2.HealthCheckRequest) == {"service": text}


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
def test_a_fraction_of_a_millisecond_is_dropped_and_every_seed_is_one(entrance: str) -> None:
    at = ENTRANCES[entrance]
    read = at.read({**at.message, "deadline_ms": 9_000.4, "seed": -5, "stop": ["", "END", None]})
    assert (read.deadline_ms, read.stop) == (9_000, ("END",))
    assert 0 < read.seed != at.read({**at.message, "seed": -6}).seed


@pytest.mark.parametrize(
    ("locale", "language"),
    [("zh-TW", "zh"), ("zh_Hans", "zh"), ("en-GB", "en"), ("de", "en"), ("EN", "en"), (["zh-CN", "en"], "zh")],
)
@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack"])
def test_a_wish_for_a_person_is_read_in_any_locale(entrance: str, locale: Any, language: str) -> None:
    assert ENTRANCES[entrance].read({"type": "handoff.request", "language": locale}).language == language


@pytest.mark.parametrize("name", ["_V1StGXR8_Z5jdHi6B-myT", "-V1StGXR8_Z5jdHi6B_myT"])
@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat.request in JSON"])
def test_ids_may_begin_as_nanoids_do(entrance: str, name: str) -> None:
    at = ENTRANCES[entrance]
    field = "id" if "id" in at.message else "event_id"
    assert getattr(at.read({**at.message, field: name}), field) == name


@pytest.mark.parametrize(
    "changed",
    [
        {"message_type": 0},
        {"message_type": "INCOMING"},
        *({"conversation": {"id": 7, "status": s}} for s in (2, "Pending")),
    ],
)
def test_an_event_of_chatwoot_is_read_by_word_or_number(changed: dict[str, Any]) -> None:
    at = ENTRANCES["Chatwoot"]
    assert at.read({**at.message, **changed}) == at.read(at.message) is not None


@pytest.mark.parametrize("reason", ["OFF_TOPIC", "OffTopic", "off-topic", "Off topic"])
def test_words_are_read_in_any_case_and_punctuation(reason: str) -> None:
    feedback = {"type": "feedback", "response_id": "r1", "rating": "UP", "reason": reason}
    read: Any = codec.client_decoder(text=True)(json.dumps(feedback))
    assert (read.rating, read.reason) == ("up", "off_topic")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "NaN", "-Infinity"])
@pytest.mark.parametrize(
    "entrance",
    [
        *("WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat completions", "responses"),
        *("chat.request in JSON", "chat.request in MessagePack"),
    ],
)
def test_what_is_no_number_is_absent(entrance: str, number: Any) -> None:
    at = ENTRANCES[entrance]
    assert at.read({**at.message, "temperature": number, "top_p": number}) == at.read(at.message)


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
def test_an_empty_map_in_place_of_a_message_with_required_fields_is_absent(entrance: str) -> None:
    at, said = ENTRANCES[entrance], {"session_id": "s1", "resume": {}}
    message = client_message({"session_start": said}) if at.plain else at.read({"type": "session.start", **said})
    assert message.resume is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "wanted",
    [
        *({"tool_choice": word} for word in ("AUTO", "None", {"type": "NONE"})),
        *({"response_format": {"type": kind}} for kind in ("TEXT", None)),
        {"modalities": ["TEXT"]},
    ],
    ids=str,
)
def test_a_choice_of_plain_text_is_read_in_capitals(wanted: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert chat_question(json.dumps(body | wanted).encode(), None).input == "hi"


def test_instructions_may_come_in_parts_and_a_conversations_id_as_a_number() -> None:
    body = {"model": "m", "input": "hi", "instructions": [{"type": "text", "text": "Be brief."}]}
    read = responses_question(json.dumps(body | {"conversation": {"id": 7}}).encode(), None)
    assert (read.system, read.conversation) == ("Be brief.", "7")


BOXES: dict[str, Callable[[Any], Any]] = {
    "Avro": lambda value: {"string": value} if isinstance(value, str) else {"long": value},
    "MongoDB": lambda value: value if isinstance(value, str) else {"$numberLong": str(value)},
    "OpenAI's assistants": lambda value: {"value": value, "annotations": []},
}


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat.request in JSON"])
def test_a_value_is_taken_out_of_its_serializers_box(entrance: str, box: str) -> None:
    at = ENTRANCES[entrance]
    whole = each(at.message, lambda value: "whole" if value == HALF else value)
    assert at.read({name: value if name == "type" else each(value, BOXES[box]) for name, value in whole.items()}) == (
        at.read(whole)
    )


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat completions"])
def test_a_zero_for_a_number_that_was_not_set_is_absent(entrance: str) -> None:
    """Go and protocol buffers of version 3 write it."""
    at = ENTRANCES[entrance]
    zeros: dict[str, Any] = dict.fromkeys(("max_output_tokens", "max_tokens", "deadline_ms", "first_token_ms"), 0)
    left = {name: value for name, value in at.message.items() if name not in zeros}
    assert at.read(left | zeros) == at.read(left)


def test_a_record_of_1970_has_no_times() -> None:
    times = dict.fromkeys(("created_unix_ms", "deadline_unix_ms", "first_token_unix_ms"), 0)
    assert open_request(json.dumps(RECORD | times).encode(), {"deadline-unix-ms": b"0"}) == (
        open_request(json.dumps(RECORD).encode(), {})
    )


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
@pytest.mark.parametrize(("age", "read"), [(12.7, 12), (-5, 0), (-0.25, 0), ("80.5", 80)])
def test_the_age_of_a_cursor_is_read_as_browsers_count_it(entrance: str, age: Any, read: int) -> None:
    said: dict[str, Any] = {"resume": {"cursor": "c", "age_ms": age}}
    at = ENTRANCES[entrance]
    message = client_message({"session_start": said}) if at.plain else at.read({"type": "session.start", **said})
    assert message.resume.age_ms == read  # type: ignore[union-attr]


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat completions"])
def test_the_largest_integers_of_a_language_mean_no_limit(entrance: str) -> None:
    """`Long.MAX_VALUE` of Java."""
    at = ENTRANCES[entrance]
    fields = (
        ("max_tokens",) if entrance == "chat completions" else ("max_output_tokens", "deadline_ms", "first_token_ms")
    )
    read = at.read({**at.message, **dict.fromkeys(fields, 2**63 - 1)})
    assert {getattr(read, name) for name in fields} == {MAX_INTEGER}


@pytest.mark.parametrize("unset", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00", -62_135_596_800_000, -1])
def test_a_time_that_was_not_set_is_absent(unset: Any) -> None:
    """Go and .NET write the first moment of their calendar."""
    times = dict.fromkeys(("created_unix_ms", "deadline_unix_ms", "first_token_unix_ms"), unset)
    headers = {"deadline-unix-ms": str(unset).encode()} if isinstance(unset, str) else {}
    assert open_request(json.dumps(RECORD | times).encode(), headers) == open_request(json.dumps(RECORD).encode(), {})


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
def test_a_clients_long_name_costs_no_session(entrance: str) -> None:
    at = ENTRANCES[entrance]

    def started(**said: Any) -> Any:
        return client_message({"session_start": said}) if at.plain else at.read({"type": "session.start", **said})

    assert started(client={"name": "x" * 300, "version": 3}) == started(client={"name": "x" * 64, "version": "3"})
    assert started(consent={"training": "no"}) == started(consent={"training": False})
