"""HTTP calls to an address that the operator has set. Redirects are not followed, proxies from the environment are not
used, and neither requests nor responses are logged."""

import asyncio
from collections.abc import Mapping
from typing import Final

import httpx2

_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 1_024 * 1_024
# Client errors after which a retry may succeed.
_PASSING: Final = frozenset({408, 425, 429})


class CallError(Exception):
    """A call failed. The text names only the kind of failure. `passing`: a retry may succeed."""

    def __init__(self, cause: str, *, passing: bool = True) -> None:
        super().__init__(cause)
        self.passing = passing


class Calls:
    """An HTTP client; close it after use."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._http = httpx2.AsyncClient(
            headers={"User-Agent": "replyline", "Content-Type": "application/json", **headers},
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            trust_env=False,
        )

    async def call(self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
        """Return the body of a 2xx response. Raises `CallError`, also if the whole response takes too long."""
        answer = b""
        try:
            response_of = self._http.stream(method, url, content=body, headers=headers)
            async with asyncio.timeout(_TIMEOUT_S), response_of as response:
                async for data in response.aiter_bytes():
                    answer += data
                    if len(answer) > _MOST_BYTES:
                        raise CallError(f"its response has more than {_MOST_BYTES} bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise CallError(type(error).__name__) from None
        if (status := response.status_code) // 100 == 2:  # noqa: PLR2004
            return answer
        raise CallError(f"status {status}", passing=status in _PASSING or status // 100 != 4)  # noqa: PLR2004

    async def close(self) -> None:
        await self._http.aclose()
