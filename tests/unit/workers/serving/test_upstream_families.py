"""What servers of each family write is read as they mean it: an end, a thought, an error, a request's form."""

import json
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from tests.support.builders.upstream_worker import worker
from tests.support.fakes.upstream import DONE, HEAD, chunk, sends, upstream

JSON_HEAD: Final = HEAD.replace(b"text/event-stream", b"application/json")
TEXT: Final = "You can return it within 30 days."
COMPLETED: Final = ("completed", "stop", TEXT)
NO_ANSWER: Final = ("incomplete", "infeasible", "")
CUT: Final = ("incomplete", "infeasible", "You can return it ")


def data(document: Any, *, before: bytes = b"data: ", after: bytes = b"\n\n") -> bytes:
    return before + json.dumps(document).encode() + after


def delta(finish: Any = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


ROLE: Final = data(delta(role="assistant", content=None))
HALF: Final = chunk("You can return it ")
REST: Final = chunk("within 30 days.")
SAID: Final = ROLE + HALF + REST
PARTS: Final = [{"type": "text", "text": "You can return it "}, {"type": "output_text", "text": "within 30 days."}]

FAMILIES: Final[dict[str, tuple[bytes, tuple[str, str, str]]]] = {
    "openai": (SAID + chunk(finish="stop") + data({"choices": [], "usage": {"prompt_tokens": 9}}) + DONE, COMPLETED),
    "openai, content filter": (ROLE + chunk(finish="content_filter") + DONE, NO_ANSWER),
    "openai, content filter after text": (ROLE + HALF + chunk(finish="content_filter") + DONE, CUT),
    "openai, refusal": (ROLE + data(delta(refusal="I can't help.")) + chunk(finish="stop") + DONE, NO_ANSWER),
    "openai, tool call": (ROLE + chunk(finish="tool_calls") + DONE, NO_ANSWER),
    "openai, old tool call": (ROLE + chunk(finish="function_call") + DONE, NO_ANSWER),
    "vllm": (SAID + data(delta("stop", content="") | {"usage": None}) + DONE, COMPLETED),
    "vllm, abort": (SAID + chunk(finish="abort") + DONE, ("incomplete", "infeasible", TEXT)),
    "vllm, error": (ROLE + data({"error": {"message": "CUDA", "code": 500}}) + DONE, NO_ANSWER),
    "vllm, old error": (ROLE + data({"object": "error", "message": "CUDA", "code": 400}) + DONE, NO_ANSWER),
    "sglang": (data(delta("", content=TEXT)) + data(delta("stop", content="")) + DONE, COMPLETED),
    "sglang, its own reason": (SAID + data(delta({"type": "stop", "matched": 2})) + DONE, COMPLETED),
    "sglang, breaks off": (data(delta("", content="You can return it ")), CUT),
    "tgi": (
        b"".join(data(delta(content=each), before=b"data:") for each in (TEXT, "")) + chunk(finish="eos_token"),
        COMPLETED,
    ),
    "tgi, stop string": (SAID + chunk(finish="stop_sequence"), COMPLETED),
    "tgi, error": (ROLE + data({"error": "Model is overloaded", "error_type": "overloaded"}), NO_ANSWER),
    "llama-server": (SAID.replace(b"\n", b"\r\n") + chunk(finish="stop") + DONE, COMPLETED),
    "llama-server, old": (SAID + data(delta() | {"stopped_eos": True}) + DONE, COMPLETED),
    "llama-server, old limit": (
        SAID + data(delta() | {"stop_type": "limit"}),
        ("incomplete", "max_output_tokens", TEXT),
    ),
    "llama-server, error": (ROLE + b'error: {"code": 500, "message": "slot"}\n\n', NO_ANSWER),
    "ollama": (SAID + data(delta(content="") | {"done_reason": "stop"}) + DONE, COMPLETED),
    "ollama, unloads": (SAID + chunk(finish="unload") + DONE, ("incomplete", "infeasible", TEXT)),
    "ollama, error": (ROLE + b'{"error": "model runner has stopped"}\n', NO_ANSWER),
    "anthropic behind a proxy": (SAID + chunk(finish="end_turn") + DONE, COMPLETED),
    "anthropic, error event": (ROLE + b"event: error\n" + data({"type": "overloaded_error"}), NO_ANSWER),
    "gemini": (SAID + chunk(finish="STOP") + DONE, COMPLETED),
    "gemini, safety": (ROLE + chunk(finish="SAFETY") + DONE, NO_ANSWER),
    "mistral, length": (SAID + chunk(finish="model_length") + DONE, ("incomplete", "max_output_tokens", TEXT)),
    "mistral, parts": (data(delta(content=PARTS)) + chunk(finish="stop") + DONE, COMPLETED),
    "trt-llm, timeout": (ROLE + chunk(finish="timeout") + DONE, NO_ANSWER),
    "a reason of tomorrow": (ROLE + HALF + chunk(finish="mind_changed") + DONE, CUT),
    "a number for a reason": (ROLE + HALF + data(delta(7)) + DONE, CUT),
    "[DONE] without a reason": (SAID + DONE, ("incomplete", "infeasible", TEXT)),
    "the connection's end without a reason": (SAID, ("incomplete", "infeasible", TEXT)),
    "keep-alives": (b": OPENROUTER PROCESSING\n\ndata:\n\nretry: 3\nid: 7\n" + SAID + chunk(finish="stop"), COMPLETED),
    "a document of several lines": (
        b"\xef\xbb\xbf"
        + b"".join(
            b"data: " + line + b"\r\n"
            for line in json.dumps(delta("stop", content=TEXT), indent=1).encode().split(b"\n")
        )
        + b"\r\n",
        COMPLETED,
    ),
}
MESSAGE: Final = {"choices": [{"message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [0, 7])
async def test_an_answer_ends_as_its_server_says(family: str, size: int) -> None:
    """`size`: of the pieces in which the bytes come; 0: all together."""
    sent, expected = FAMILIES[family]
    parts = [sent[at : at + size] for at in range(0, len(sent), size)] if size else [sent]
    async with upstream(sends(HEAD, *parts)) as fake, worker(fake.url) as running:
        assert await running.end(running.ask(0)) == [expected]


@pytest.mark.parametrize("indent", [None, 2])
async def test_an_answer_that_is_no_stream_is_read_too(indent: int | None) -> None:
    body = json.dumps(MESSAGE, indent=indent).encode()
    async with upstream(sends(JSON_HEAD, body)) as fake, worker(fake.url) as running:
        assert await running.end(running.ask(0)) == [COMPLETED]


THOUGHT: Final = "Okay, the customer is annoyed. I must hide the complaints. "
THINKERS: Final[dict[str, list[bytes]]] = {
    "deepseek's field": [data(delta(reasoning_content=THOUGHT)), SAID],
    "vllm's and openrouter's field": [data(delta(content="", reasoning=THOUGHT)), SAID],
    "ollama's field": [data(delta(thinking=THOUGHT)), SAID],
    "mistral's parts": [
        data(delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}])),
        SAID,
    ],
    "no parser": [chunk("<th"), chunk("ink>"), chunk(THOUGHT), chunk("</thi"), chunk("nk>\n\n"), SAID],
    "the template opens the thought": [chunk("Okay, "), chunk(THOUGHT[6:]), chunk("</think>\n\n"), SAID],
    "harmony": [
        chunk("<|channel|>"),
        chunk("analysis<|message|>" + THOUGHT),
        chunk("<|end|><|start|>assistant"),
        chunk("<|channel|>final<|message|>"),
        SAID,
    ],
}


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("thinker", THINKERS)
async def test_a_thought_is_no_answer_and_no_first_text(thinker: str, *, guard: bool) -> None:
    """It shows the customer nothing, and it is not silence of the server either."""
    with capture_logs() as logs:
        async with upstream(sends(HEAD, *THINKERS[thinker], chunk(finish="stop"))) as fake, worker(fake.url) as running:
            asked = [running.ask(number, guard=guard) for number in range(3)]
            assert await running.end(*asked) == [COMPLETED] * 3
    warned = [line["action"] for line in logs if line["event"] == "thoughts_left_out"]
    assert len(warned) == (thinker in ("no parser", "the template opens the thought", "harmony"))
    assert all("--reasoning-parser" in action for action in warned)


@pytest.mark.parametrize("thinker", THINKERS)
async def test_one_that_only_thinks_until_the_deadline_has_the_faq_and_no_blame(thinker: str) -> None:
    thinks = THINKERS[thinker][:1] if "field" in thinker or "parts" in thinker else [chunk("<think>" + THOUGHT)]
    async with upstream(sends(HEAD, *thinks, then=60)) as fake, worker(fake.url) as running:
        asked = [running.ask(number, first_ms=500) for number in range(4)]
        ends = await running.end(*asked)
        assert {(status, text) for status, _, text in ends} == {("incomplete", "")}
        assert running.loop.choice._upstreams[fake.url].failures == 0
