"""The conversations asked of another server: the same turns, its own answers, and what goes wrong in one line."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ops.stack.processes import ServiceError, free_port
from shared.faq import FaqIndex
from tests.bench.kv.conversations import choose, load_conversations
from tests.bench.kv.peer import ask_peer, converse_with_peer, grounded_system_text


class FakePeer(BaseHTTPRequestHandler):
    """Answers with the number of messages it was sent; keeps what it was asked."""

    asked: list[dict[str, Any]]
    status = 200

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append({"path": self.path, **body})
        self.send_response(self.status)
        self.end_headers()
        if self.status != 200:
            self.wfile.write(b"no slot")
            return
        chunks: list[dict[str, Any]] = [
            {"choices": [{"delta": {"role": "assistant", "content": None}}]},
            {"choices": [{"delta": {"content": "after "}}]},
            {"choices": [{"delta": {"content": str(len(body["messages"]))}}]},
            {"choices": [{"delta": {}, "finish_reason": "length"}]},
            {"choices": [], "usage": {"prompt_tokens": 70, "completion_tokens": 9}},
        ]
        for chunk in chunks:
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def fake_peer(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(address, what it is asked)"""
    asked: list[dict[str, Any]] = []
    handler = type("Handler", (FakePeer,), {"asked": asked, "status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


async def test_the_peer_is_asked_every_turn_with_all_that_was_said_before() -> None:
    """Its own answers included; greedily, streaming, with its cache."""
    conversations = choose(load_conversations(), 3)
    with fake_peer() as (url, asked):
        done = await converse_with_peer(
            url,
            conversations,
            clients=2,
            max_output_tokens=48,
            system_text=lambda question: f"help for {question}",
        )
    turns = sum(len(one.turns) for one in conversations)
    assert len(asked) == len(done.answers) == turns
    for conversation in conversations:
        first, second = conversation.turns[:2]
        begun = [one for one in asked if one["messages"][1]["content"] == first]
        assert [len(one["messages"]) for one in begun] == [2 * turn for turn in range(1, len(conversation.turns) + 1)]
        assert begun[1]["messages"] == [
            {"role": "system", "content": f"help for {first}"},
            {"role": "user", "content": first},
            {"role": "assistant", "content": "after 2"},
            {"role": "user", "content": second},
        ]
    request = asked[0]
    assert request["path"] == "/v1/chat/completions"
    assert (request["stream"], request["cache_prompt"], request["temperature"]) == (True, True, 0.0)
    assert request["max_tokens"] == 48
    figures = done.figures()
    assert (figures["prompt_tokens"], figures["failed"]) == (70 * turns, 0)
    assert figures["answers_per_s"] == pytest.approx(turns / done.elapsed_s, rel=0.01)


async def test_a_peer_that_refuses_or_is_not_there_is_told_with_its_address_or_what_it_says() -> None:
    with fake_peer(status=503) as (url, _), pytest.raises(ServiceError, match=r"answers 503: no slot"):
        ask_peer(url, [{"role": "user", "content": "?"}], 48)
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ServiceError, match=rf"--peer {url}: .*is a llama-server there"):
        ask_peer(url, [{"role": "user", "content": "?"}], 48)


def test_the_peer_is_grounded_as_a_worker_is() -> None:
    """The system text, then the entries that fit the first question."""
    text = grounded_system_text(FaqIndex.load(), "You are the shop.", 2)("How do I return an item?")
    assert text.startswith("You are the shop.\n\nQ: How do I return an item?\nA: ")
    assert text.count("Q: ") == 2
    assert grounded_system_text(FaqIndex.load(), "", 0)("Hello?") == ""
