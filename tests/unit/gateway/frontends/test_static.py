"""The page's files are sent completely once, and later only after a change."""

from http import HTTPStatus

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from gateway.frontends.static import StaticFiles


def get(path: str, *tags: str) -> Response | None:
    headers = Headers()
    for tag in tags:
        headers["If-None-Match"] = tag
    return StaticFiles().get(Request(path, headers))


@pytest.mark.parametrize("path", ["/", "/widget/replyline-chat.js?v=2"])
def test_a_browser_with_a_current_file_gets_304(path: str) -> None:
    first = get(path)
    assert first is not None
    assert first.status_code == HTTPStatus.OK
    assert first.headers["Content-Length"] == str(len(first.body))
    tag = first.headers["ETag"]
    for told in ((tag,), ('"another"', tag), (f'"another", W/{tag}',)):
        again = get(path, *told)
        assert again is not None
        assert again.status_code == HTTPStatus.NOT_MODIFIED
        assert again.body == b""
        assert again.headers["ETag"] == tag
        assert "Content-Length" not in again.headers
        assert again.headers["Content-Security-Policy"] == first.headers["Content-Security-Policy"]


def test_a_changed_file_is_sent_and_a_missing_one_is_404() -> None:
    changed = get("/", '"another"')
    assert changed is not None
    assert changed.status_code == HTTPStatus.OK
    assert get("/widget/../__main__.py") is None
