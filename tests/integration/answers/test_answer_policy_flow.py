"""Who answers a question, through Kafka and back: small talk, the FAQ's entry, the model, or no one, and then a person
is offered.
"""

import pytest

from tests.support.system import Service, System
from tests.support.wire import Client

pytestmark = pytest.mark.system(answers__policy="grounded", answers__guard=True, answers__confident_score=1)


async def test_each_question_is_answered_by_the_source_that_the_faq_selects(
    system: System, gateway: Service, worker: Service
) -> None:
    """A question that the model is not asked uses none of its slots, and is remembered like any answer. Of the fake
    engine's letters the guard shows none, but the entry's words."""
    async with Client.connect(gateway.ws) as client:
        hello = await client.ask("Hello!")
        perhaps = await client.ask("I would like to return an item, how does that work?")
        grounded = await client.ask("How do I return an item?", max_output_tokens=32)
        song, poem = [await client.ask(text) for text in ("Sing me a song", "给我写一首诗")]
        handoff = await client.of_type("handoff.created")
    assert hello.outcome == ("completed", "stop", "courtesy")
    assert perhaps.outcome == ("completed", "stop", "quote")
    assert perhaps.response["grounding"]
    assert all(f"About “{found['question']}”: " in perhaps.text for found in perhaps.response["grounding"])
    assert grounded.outcome[2] in {"faq", "mixed"}
    assert grounded.response["replaced"][0]["id"] == grounded.response["grounding"][0]["id"]
    assert song.outcome == poem.outcome == ("completed", "stop", "unsure")
    assert "A person can help" in song.text
    assert "人工客服" in poem.text
    assert handoff["reason"] == "fallbacks"
    turns = await system.turns(client.session_id, at_least=5)
    assert [turn.source for turn in turns] == ["courtesy", "quote", grounded.outcome[2], "unsure", "unsure"]
    shown = [len(answer.response["grounding"]) for answer in (perhaps, grounded)]
    assert [len(turn.grounding) for turn in turns] == [0, *shown, 0, 0]
    assert await gateway.metric("replyline_gateway_answers_total", source="unsure") == 2
    assert await worker.metric("replyline_worker_queue_seconds_count") == 1
    assert await gateway.metric("replyline_gateway_fallbacks_total") == 0
