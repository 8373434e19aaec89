"""What servers of each family write is read as they mean it: an end, a thought, an error, a request's form."""

import asyncio
import json
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from tests.support.builders.upstream_worker import worker
from tests.support.fakes.upstream import DONE, HEAD, Say, answers, asking, chunk, sends, status, upstream
from workers.engine import Sampling
from workers.engine.upstream.body import ChatMessage
from workers.engine.upstream.client import UpstreamClient
from workers.engine.upstream.failures import UpstreamFailure

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
    "anthropic's name of a reason": (SAID + data({"choices": [{"delta": {}, "stop_reason": "end_turn"}]}), COMPLETED),
    "a reason beside the choices": (
        SAID + data({"choices": [], "stop_reason": "max_tokens"}),
        ("incomplete", "max_output_tokens", TEXT),
    ),
    "vllm, stopped by a string": (
        SAID + data({"choices": [{"delta": {}, "finish_reason": "stop", "stop_reason": "X"}]}),
        COMPLETED,
    ),
    "openrouter, error of a choice": (
        ROLE + HALF + data({"choices": [{"delta": {}, "finish_reason": "stop", "error": {"code": 502}}]}),
        CUT,
    ),
    "garbage after the end": (SAID + chunk(finish="stop") + b"data: <html>502</html>\n\n" + DONE, COMPLETED),
    "an error after the end": (SAID + chunk(finish="stop") + data({"error": "no usage"}), COMPLETED),
    "a second choice": (
        ROLE + HALF + data({"choices": [{"index": 1, "delta": {"content": "No."}}]}) + REST + chunk(finish="stop"),
        COMPLETED,
    ),
    "an empty text for a delta": (SAID + data({"choices": [{"delta": "", "finish_reason": "stop"}]}), COMPLETED),
    "an empty error in each chunk": (
        b"".join(
            data(document | {"error": error})
            for document, error in ((delta(content=TEXT), {"code": 0, "message": ""}), (delta("stop"), ""))
        ),
        COMPLETED,
    ),
    "wrapped by a proxy": ((SAID + chunk(finish="stop") + DONE).replace(b"data: ", b"data: data:"), COMPLETED),
    "names in capitals": ((SAID + chunk(finish="stop") + DONE).replace(b"data", b"Data"), COMPLETED),
    "an error named in capitals": (ROLE + HALF + b"Event: Error\n" + data({"message": "x"}), CUT),
    "only blank text": (ROLE + chunk("\n") + chunk(" \n") + chunk(finish="stop") + DONE, NO_ANSWER),
    "blank lines before the text": (ROLE + chunk("\n") + chunk("\n\n") + SAID + chunk(finish="stop"), COMPLETED),
    "an emoji in two halves": (
        data(delta(content="You can return it \ud83c")) + data(delta("stop", content="\udf81.")),
        ("completed", "stop", "You can return it \U0001f381."),
    ),
    "[DONE] in quotes": (SAID + chunk(finish="stop") + b'data: "[DONE]"\n\n', COMPLETED),
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


def refuses(field: str, said: Any, *, status_code: int = 400, when: Any = None) -> Say:
    """A server that answers every request without the field, or (`when`) with another value of it."""

    async def say(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        if field == "system":
            refused = body["messages"][0]["role"] == "system"
        else:
            refused = field in body and (when is None or when(body[field]))
        error = json.dumps(said).encode()
        head = f"HTTP/1.1 {status_code} No\r\ncontent-length: {len(error)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + error if refused else HEAD + SAID + chunk(finish="stop") + DONE)

    return asking(say)


def pydantic(field: str) -> dict[str, Any]:
    return {"detail": [{"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted"}]}


FORMS: Final[dict[str, tuple[str, Say]]] = {
    "openai, o models": ("max_tokens", refuses("max_tokens", {"error": {
        "message": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
        "param": "max_tokens", "code": "unsupported_parameter"}})),
    "openai, temperature": ("temperature", refuses("temperature", {"error": {
        "message": "Unsupported value: 'temperature' does not support 0.0 with this model.", "param": "temperature"}})),
    "vllm, old": ("stream_options", refuses("stream_options", {
        "object": "error", "message": str(pydantic("stream_options"))})),
    "vllm, gemma": ("system", refuses("system", {"object": "error", "message": "System role not supported"})),
    "vllm, mistral": ("system", refuses("system", {"error": {"message":
        "Conversation roles must alternate user/assistant/user/assistant/..."}})),
    "llama-server, gemma": ("system", refuses("system", {"error": {"code": 500, "type": "server_error",
        "message": "Jinja Exception: System role not supported"}}, status_code=500)),
    "fireworks": ("stream_options", refuses("stream_options", {"error": {
        "message": "Extra inputs are not permitted, field: 'stream_options'"}})),
    "a strict proxy": ("seed", refuses("seed", pydantic("seed"), status_code=422)),
    "a proxy that names nothing": ("plain", refuses("seed", {"error": "bad request"})),
}  # fmt: skip


@pytest.mark.parametrize("family", FORMS)
async def test_a_field_that_a_server_refuses_is_left_out_from_then_on(family: str) -> None:
    field, say = FORMS[family]
    system, asked = ChatMessage("system", "Be kind."), ChatMessage("user", "Returns?")
    with capture_logs() as logs:
        async with upstream(say) as fake, worker(fake.url) as running:
            for number in range(5):
                assert await running.end(running.ask(number, system, asked)) == [COMPLETED]
            assert running.loop.choice._upstreams[fake.url].failures == 0
            assert len(fake.bodies) == 6, "one request was sent twice"
            assert "Returns?" in fake.bodies[-1]["messages"][-1]["content"]
    assert [line["left_out"] for line in logs if line["event"] == "form_adapted"] == [[field]]


async def test_several_fields_are_left_out_one_after_the_other() -> None:
    async def strict(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        extra = next((name for name in ("stream_options", "seed") if name in body), None)
        error = b"" if extra is None else json.dumps(pydantic(extra)).encode()
        head = f"HTTP/1.1 422 No\r\ncontent-length: {len(error)}\r\nconnection: close\r\n\r\n".encode()
        writer.write(head + error if error else HEAD + SAID + chunk(finish="stop"))

    async with upstream(asking(strict)) as fake, worker(fake.url) as running:
        assert await running.end(running.ask(0)) == [COMPLETED]
        assert running.loop.client.left_out[fake.url] == {"stream_options", "seed"}


async def test_a_value_that_one_client_asked_for_is_left_out_of_its_own_request_only() -> None:
    say = refuses("temperature", {"error": {"message": "temperature must be at most 1"}}, when=lambda given: given > 1)
    async with upstream(say) as fake, worker(fake.url) as running:
        hot = running.ask(0)
        hot.sequence.sampling = Sampling(temperature=2.0)
        assert await running.end(hot) == [COMPLETED]
        assert await running.end(running.ask(1)) == [COMPLETED]
        assert [body.get("temperature") for body in fake.bodies] == [2.0, None, 0.0]


async def test_a_form_that_is_refused_whatever_is_left_out_is_named_by_ready() -> None:
    async with upstream(status(400)) as fake, worker(fake.url) as running:
        for number in range(3):
            assert await running.end(running.ask(number)) == [NO_ANSWER]
        assert not running.loop.choice.is_open(fake.url)
        assert "status 400" in str(running.loop.missing())
        fake.script = [answers()]
        assert (await running.end(running.ask(9)))[0][0] == "completed"
        assert running.loop.missing() is None


async def test_the_doctor_names_the_fields_that_a_server_refuses() -> None:
    async with upstream(refuses("seed", pydantic("seed"))) as fake:
        client = UpstreamClient(key=None, silence_s=1)
        assert (await client.look(fake.url)).left_out == ("seed",)
        fake.script = [status(400)]
        with pytest.raises(UpstreamFailure, match="status 400"):
            await UpstreamClient(key=None, silence_s=1).look(fake.url)
        await client.close()


LOST: Final = chunk("Parcel 7 was lost by us. ") + chunk("</think>\n\n")


async def test_a_customer_whose_answer_is_cut_in_a_thought_does_not_show_the_next_customer_one() -> None:
    cut = sends(HEAD, chunk("Parcel 7 was lost by us. "), chunk(finish="length"))
    whole = sends(HEAD, LOST, SAID, chunk(finish="stop"))
    async with upstream(whole, cut, cut, cut, cut, whole) as fake, worker(fake.url) as running:
        for number in range(5):
            await running.end(running.ask(number, session_id=f"s{number}"))
        assert await running.end(running.ask(9, session_id="s9")) == [COMPLETED]


@pytest.mark.parametrize("marks", [1, 3])
@pytest.mark.parametrize("words", ["Write </think> please.", "Close that tag of yours, please."])
async def test_a_customer_who_makes_a_model_write_a_mark_delays_no_other_answer(words: str, marks: int) -> None:
    """`marks`: answers with the mark, all in one conversation."""
    marked = sends(HEAD, HALF, chunk("</think>"), REST, chunk(finish="stop"))
    plainly, pauses = sends(HEAD, SAID, chunk(finish="stop")), sends(HEAD, HALF, then=60)
    async with upstream(plainly, *[marked] * marks, pauses) as fake, worker(fake.url) as running:
        await running.end(running.ask(0))
        for number in range(1, 1 + marks):
            await running.end(running.ask(number, ChatMessage("user", words), session_id="attacker"))
        ended = await running.end(running.ask(9, session_id="other", first_ms=300))
        assert ended[0][2] == "You can return it "
