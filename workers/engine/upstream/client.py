"""HTTP to upstreams: a stream of pieces, and the probe that checks whether a server is there.

Redirects are not followed, and environment proxies are not used; nothing that an upstream sends is logged.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Collection
from contextlib import aclosing
from typing import Any, Final

import httpx2
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shared.telemetry.logs import get_logger
from shared.wire.lenient import UNREADABLE
from workers.engine.upstream.body import ChatMessage, trial_body
from workers.engine.upstream.events import Events, Piece
from workers.engine.upstream.failures import PLAIN, UpstreamFailure, adapted, of_status, to_remember

_CONNECT_S: Final = 2.0
_PROBE_S: Final = 5.0
_KEEP_S: Final = 30.0
_MOST_PAGE_BYTES: Final = 1_024 * 1_024
_OK: Final = 200
_REPEATED: Final = 3
_MOST_REFUSAL_BYTES: Final = 16 * 1_024


class _Model(Struct):
    id: str
    max_model_len: int | None = None


class _Models(Struct):
    data: list[_Model]


class _OneSlot(Struct, frozen=True):
    n_ctx: int | None = None


class _Props(Struct):
    """llama-server's /props."""

    total_slots: int
    default_generation_settings: _OneSlot = _OneSlot()


class Served(Struct, frozen=True):
    """An upstream's description of itself.

    Attributes:
        left_out: fields of a request that it rejects.
    """

    models: tuple[str, ...]
    slots: int | None = None
    length: int | None = None
    left_out: tuple[str, ...] = ()


class Refusals:
    """Rejections by addresses that have not accepted any request yet, for `/ready`; later ones concern single
    requests."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self._refused: dict[str, tuple[int, str]] = {}

    def accept(self, address: str) -> None:
        self.accepted.add(address)
        self._refused.pop(address, None)

    def is_new(self, address: str, failure: UpstreamFailure, refused: Collection[str]) -> bool:
        """Return whether a failure rejects one more field, so that the request can be sent without it; otherwise
        count it."""
        accepts, field = address in self.accepted, failure.field
        if field is not None and field not in refused and not (field == PLAIN and accepts):
            return True
        if field is not None and not accepts:
            self._refused[address] = self._refused.get(address, (0, ""))[0] + 1, str(failure)
        return False

    def missing(self, num_addresses: int) -> str | None:
        """Return why no address accepts any request; None while one does, or before enough rejections."""
        repeated = [f"{address}: {why}" for address, (count, why) in self._refused.items() if count >= _REPEATED]
        return "; ".join(repeated) if len(repeated) == num_addresses else None


class UpstreamClient:
    """The client; call `close` at the end. A stream without data for `silence_s` is given up."""

    def __init__(self, *, key: str | None, silence_s: float) -> None:
        self.left_out: dict[str, frozenset[str]] = {}
        """By address, the fields that are left out of requests there because the server rejects them."""
        self.refusals = Refusals()
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
        """Yield the pieces of an answer as they arrive; closing the iterator makes the upstream stop.

        A field that the upstream rejects is left out of later requests too.

        Raises:
            UpstreamFailure: the upstream did not answer.
        """
        refused: set[str] | None = set(self.left_out.get(address, ()))
        while True:
            try:
                async with aclosing(self._pieces(address, adapted(body, refused or ()))) as pieces:
                    async for piece in pieces:
                        if refused is not None:
                            self._accepted(address, to_remember(refused, body))
                            refused = None
                        yield piece
            except UpstreamFailure as failure:
                if refused is None or not self.refusals.is_new(address, failure, refused):
                    raise
                refused.add(failure.field or PLAIN)
            else:
                return

    def _accepted(self, address: str, left_out: frozenset[str]) -> None:
        self.refusals.accept(address)
        if left_out - self.left_out.get(address, frozenset()):
            self.left_out[address] = left_out
            get_logger().warning(
                "form_adapted", upstream=address, left_out=sorted(left_out), action="nothing: it answers"
            )

    async def _pieces(self, address: str, body: bytes) -> AsyncGenerator[Piece]:
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
        """Return the name of the first model that an upstream lists.

        Raises:
            UpstreamFailure: it did not answer.
        """
        return (await self._models(address))[0].id

    async def look(self, address: str, *, model: str = "") -> Served:
        """Return an upstream's description of itself and the request fields that it rejects, for display.

        Raises:
            UpstreamFailure: it did not answer.
        """
        models = await self._models(address)
        names, length = tuple([each.id for each in models]), models[0].max_model_len
        await self._try_form(address, model or names[0])
        served = await self._look_at_slots(address, names, length)
        return replace(served, left_out=tuple(sorted(self.left_out.get(address, ()))))

    async def _try_form(self, address: str, model: str) -> None:
        """Ask for one token.

        Raises:
            UpstreamFailure: the request's form is rejected; other failures are ignored.
        """
        try:
            await self.try_own_words(address, model)
        except UpstreamFailure as failure:
            if failure.field is not None:
                raise

    async def try_own_words(self, address: str, model: str) -> None:
        """Ask for one token with a text that no customer wrote, to the answer's end.

        Raises:
            UpstreamFailure: it did not answer.
        """
        messages = (ChatMessage("system", "Answer."), ChatMessage("user", "Hello"))
        try:
            async with asyncio.timeout(_PROBE_S):
                async with aclosing(self.pieces(address, trial_body(model, messages))) as pieces:
                    async for _ in pieces:
                        pass
        except TimeoutError:
            raise UpstreamFailure("silent", f"no end within {_PROBE_S:g} s") from None

    async def _look_at_slots(self, address: str, names: tuple[str, ...], length: int | None) -> Served:
        try:
            page = await self._page(f"{address.removesuffix('/v1')}/props")
            props = msgspec.json.decode(page, type=_Props)
        except (UpstreamFailure, *UNREADABLE):
            return Served(names, length=length)
        return Served(names, props.total_slots, props.default_generation_settings.n_ctx)

    async def _models(self, address: str) -> list[_Model]:
        try:
            models = msgspec.json.decode(await self._page(f"{address}/models"), type=_Models).data
        except UNREADABLE:
            models = []
        if not models:
            raise UpstreamFailure(
                "not_found", "/models lists none; REPLYLINE_UPSTREAM__URL ends with /v1 for most servers"
            )
        return models

    async def _page(self, url: str) -> bytes:
        """Return a page, truncated if it is too long.

        Raises:
            UpstreamFailure: the upstream did not answer.
        """
        try:
            async with asyncio.timeout(_PROBE_S), aclosing(self._bytes("GET", url)) as received:
                return await _at_most(received, _MOST_PAGE_BYTES)
        except TimeoutError:
            raise UpstreamFailure("silent", f"no answer within {_PROBE_S:.0f} s; look into its log") from None

    async def _bytes(self, method: str, url: str, body: bytes | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes of an answer with status 200.

        Raises:
            UpstreamFailure: the upstream did not answer, or with another status.
        """
        more: dict[str, Any] = (
            {} if body is None else {"content": body, "headers": {"Content-Type": "application/json"}}
        )
        try:
            async with self._http.stream(method, url, **more) as response:
                if response.status_code != _OK:
                    said = b"" if body is None else await _at_most(response.aiter_raw(), _MOST_REFUSAL_BYTES)
                    raise of_status(response.status_code, response.headers.get("retry-after"), said, body or b"")
                async for data in response.aiter_raw():
                    yield data
        except httpx2.ConnectTimeout:
            raise UpstreamFailure("no_connection", f"no connection within {_CONNECT_S:.0f} s; start it") from None
        except httpx2.TimeoutException:
            raise UpstreamFailure("silent", "it sends nothing; look into its log") from None
        except httpx2.NetworkError as error:
            raise UpstreamFailure("unreachable", f"{type(error).__name__}; start it") from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise UpstreamFailure("broken_stream", f"it does not speak HTTP: {type(error).__name__}") from None


async def _at_most(received: AsyncIterable[bytes], most: int) -> bytes:
    """Return all bytes, or the first `most` of them."""
    said = b""
    async for data in received:
        said += data
        if len(said) > most:
            break
    return said
