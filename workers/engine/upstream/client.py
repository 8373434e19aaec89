"""Speak HTTP with upstreams: a stream of pieces, and the probe that says whether one is there.

Redirections are not followed, nor is a proxy of the environment used; nothing that an upstream sends goes into a log.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import httpx2
import msgspec
from msgspec import Struct

from workers.engine.upstream.events import Events, Piece
from workers.engine.upstream.failures import UpstreamFailure, of_status

_CONNECT_S: Final = 2.0
_PROBE_S: Final = 5.0
_KEEP_S: Final = 30.0
_MOST_PAGE_BYTES: Final = 1_024 * 1_024
_NO_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OK: Final = 200


class _Model(Struct):
    id: str
    max_model_len: int | None = None


class _Models(Struct):
    data: list[_Model]


class _OneSlot(Struct, frozen=True):
    n_ctx: int | None = None


class _Props(Struct):
    """A page of llama-server's."""

    total_slots: int
    default_generation_settings: _OneSlot = _OneSlot()


class Served(Struct, frozen=True):
    """The models that an upstream says it serves, at least one; how many requests at a time; and how many tokens for
    each. None: it does not say."""

    models: tuple[str, ...]
    slots: int | None = None
    length: int | None = None


class UpstreamClient:
    """`silence_s`: a stream from which so long nothing comes is given up. To be closed."""

    def __init__(self, *, key: str | None, silence_s: float) -> None:
        headers = {"Accept-Encoding": "identity", "User-Agent": "replyline"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(silence_s, connect=_CONNECT_S),
            limits=httpx2.Limits(keepalive_expiry=_KEEP_S),
            follow_redirects=False,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def pieces(self, address: str, body: bytes) -> AsyncGenerator[Piece]:
        """Give the pieces of an answer as they come; closing the iterator has the upstream end it. Raises
        `UpstreamFailure`."""
        events = Events()
        finished = False
        async with aclosing(self._bytes("POST", f"{address}/chat/completions", body)) as received:
            async for data in received:
                for piece in events.feed(data):
                    finished = finished or piece.finish is not None
                    yield piece
                if events.thoughts:
                    events.thoughts = 0
                    yield Piece(thinks=True)
                if events.done:
                    break
        for piece in events.close():
            finished = finished or piece.finish is not None
            yield piece
        if not finished:
            raise UpstreamFailure("broken_stream", "its stream ended before the answer did")

    async def first_model(self, address: str) -> str:
        """Return the name of the first model that an upstream lists. Raises `UpstreamFailure`."""
        return (await self._models(address))[0].id

    async def look(self, address: str) -> Served:
        """Return what an upstream says of itself, for people. Raises `UpstreamFailure`."""
        models = await self._models(address)
        names, length = tuple([each.id for each in models]), models[0].max_model_len
        try:
            page = await self._page(f"{address.removesuffix('/v1')}/props")
            props = msgspec.json.decode(page, type=_Props)
        except (UpstreamFailure, *_NO_JSON):
            return Served(names, length=length)
        return Served(names, props.total_slots, props.default_generation_settings.n_ctx)

    async def _models(self, address: str) -> list[_Model]:
        try:
            models = msgspec.json.decode(await self._page(f"{address}/models"), type=_Models).data
        except _NO_JSON:
            models = []
        if not models:
            raise UpstreamFailure(
                "not_found", "/models lists none; REPLYLINE_UPSTREAM__URL ends with /v1 for most servers"
            )
        return models

    async def _page(self, url: str) -> bytes:
        """Return a page, or of an endless one its beginning. Raises `UpstreamFailure`."""
        answer = b""
        try:
            async with asyncio.timeout(_PROBE_S), aclosing(self._bytes("GET", url)) as received:
                async for data in received:
                    answer += data
                    if len(answer) > _MOST_PAGE_BYTES:
                        break
        except TimeoutError:
            raise UpstreamFailure("silent", f"no answer within {_PROBE_S:.0f} s; look into its log") from None
        return answer

    async def _bytes(self, method: str, url: str, body: bytes | None = None) -> AsyncGenerator[bytes]:
        """Give the bytes of an answer of status 200. Raises `UpstreamFailure`."""
        more: dict[str, Any] = (
            {} if body is None else {"content": body, "headers": {"Content-Type": "application/json"}}
        )
        try:
            async with self._http.stream(method, url, **more) as response:
                if response.status_code != _OK:
                    raise of_status(response.status_code, response.headers.get("retry-after"))
                async for data in response.aiter_raw():
                    yield data
        except httpx2.ConnectTimeout:
            raise UpstreamFailure("no_connection", f"no connection within {_CONNECT_S:.0f} s; start it") from None
        except httpx2.TimeoutException:
            raise UpstreamFailure("silent", "it says nothing; look into its log") from None
        except httpx2.NetworkError as error:
            raise UpstreamFailure("unreachable", f"{type(error).__name__}; start it") from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise UpstreamFailure("broken_stream", f"it does not speak HTTP: {type(error).__name__}") from None
