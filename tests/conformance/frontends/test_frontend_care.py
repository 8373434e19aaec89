"""Requests for a person and ratings of answers, over every front end."""

import pytest

from tests.conformance.frontends.front_ends import FrontEnd
from tests.support.system import Service
from tests.support.wire import Client


async def test_a_hand_off_is_confirmed_with_the_requests_event_id(client: Client) -> None:
    assert client.events[0]["handoff"] is True
    await client.send({"type": "handoff.request", "event_id": "h-1", "language": "zh"})
    told = await client.of_type("handoff.created")
    assert told["handoff_id"].startswith("handoff_")
    assert (told["reason"], told["event_id"]) == ("requested", "h-1")
    assert told["created_at"] > 1_700_000_000_000
    assert client.count("response.created") == 0


async def test_repeated_requests_and_reconnects_report_the_same_hand_off(
    client: Client, gateway: Service, front: FrontEnd
) -> None:
    await client.send({"type": "handoff.request"})
    first = await client.of_type("handoff.created")
    seen = len(client.events)
    await client.send({"type": "handoff.request", "event_id": "again"})
    assert await client.of_type("handoff.created", since=seen) == {**first, "event_id": "again"}
    answer = await client.ask("转人工")
    assert answer.outcome == ("completed", "stop", "handoff")
    assert "已经" in answer.text
    async with Client.connect(gateway.ws, front.form, session_id=client.session_id) as back:
        assert await back.of_type("handoff.created") == first


async def test_a_question_that_asks_for_a_person_gets_only_the_hand_off(client: Client) -> None:
    answer = await client.ask("I want to talk to a person")
    assert answer.outcome == ("completed", "stop", "handoff")
    assert answer.text.startswith("I have asked a person")
    assert (await client.of_type("handoff.created"))["reason"] == "text"
    other = await client.ask("I don't want to talk to a person", max_output_tokens=3)
    assert other.outcome[2] == "model"


async def test_the_last_rating_of_an_answer_is_recorded(client: Client) -> None:
    answer = await client.ask("Hello", max_output_tokens=2)
    name = answer.response["id"]
    for rated in ({"rating": "up"}, {"rating": "down", "resolved": False, "reason": "wrong", "event_id": "f-2"}):
        seen = len(client.events)
        await client.send({"type": "feedback", "response_id": name, **rated})
        recorded = await client.of_type("feedback.recorded", since=seen)
        assert recorded == {"type": "feedback.recorded", "response_id": name, **rated}


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"response_id": "resp_never", "rating": "up"}, "unknown_response", "response_id"),
        ({"response_id": "x", "reason": "wrong"}, "invalid_field", "rating"),
        ({"response_id": "x", "rating": "sideways"}, "invalid_field", "rating"),
        ({"response_id": "x", "resolved": "perhaps"}, "invalid_field", "resolved"),
        ({"response_id": "x", "rating": "up", "reason": "I was bored"}, "invalid_field", "reason"),
        ({"response_id": "", "rating": "up"}, "invalid_field", "response_id"),
        ({"rating": "up"}, "invalid_field", "response_id"),
    ],
)
async def test_invalid_feedback_is_one_error_that_names_the_field(
    client: Client, fields: dict[str, object], code: str, param: str
) -> None:
    await client.send({"type": "feedback", "event_id": "f-1", **fields})
    error = await client.error()
    assert (error["code"], error["param"], error["event_id"]) == (code, param, "f-1")


async def test_an_answer_of_another_session_cannot_be_rated(client: Client, gateway: Service, front: FrontEnd) -> None:
    async with Client.connect(gateway.ws, front.form) as other:
        name = (await other.ask("Hello", max_output_tokens=2)).response["id"]
    await client.send({"type": "feedback", "response_id": name, "rating": "up"})
    assert (await client.error())["code"] == "unknown_response"


@pytest.mark.parametrize(("param", "value"), [("event_id", "with space"), ("event_id", "e" * 300)])
async def test_a_request_for_a_person_with_an_invalid_field_opens_no_hand_off(
    client: Client, param: str, value: object
) -> None:
    await client.send({"type": "handoff.request", param: value})
    error = await client.error()
    assert (error["code"], error["param"]) == ("invalid_field", param)
    assert client.count("handoff.created") == 0
