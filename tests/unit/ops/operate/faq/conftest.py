"""A site that answers from a table, and `replyline faq read` of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shared.faq.entries import read_entries
from tests.unit.ops.operate.faq.test_read import read as read_pages

Given = str | bytes | tuple[int, dict[str, str], str | bytes]
Answer = Given | Exception | Callable[[httpx2.Request], Given]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Answer]], list[str]]:
    """Serve these answers by their addresses; return the addresses that were asked for."""

    def start(answers: dict[str, Answer]) -> list[str]:
        asked: list[str] = []

        def answer(request: httpx2.Request) -> httpx2.Response:
            url = str(request.url)
            asked.append(url)
            found = answers.get(url, (404, {}, "gone"))
            found = found(request) if callable(found) else found
            if isinstance(found, Exception):
                raise found
            status, headers, body = found if isinstance(found, tuple) else (200, {}, found)
            body = body.encode() if isinstance(body, str) else body
            return httpx2.Response(status, headers={"content-type": "text/html", **headers}, content=body)

        client = httpx2.Client

        def connect(**options: Any) -> httpx2.Client:
            return client(transport=httpx2.MockTransport(answer), **options)

        monkeypatch.setattr("ops.operate.faq.site.httpx2.Client", connect)
        return asked

    return start


Read = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Read pages; return the command's status, and the questions that it has written."""

    def start(*words: str) -> tuple[int, list[str]]:
        out = tmp_path / "pages.json"
        status = read_pages(monkeypatch, *words, "--out", str(out))
        return status, [entry.question for entry in read_entries(out)] if out.exists() else []

    return start
