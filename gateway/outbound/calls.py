"""Calls to an address that the operator has set. No redirection is followed, no proxy of the environment is used, and
nothing that is sent or answered goes into a log."""

from collections.abc import Mapping
from typing import Final

import httpx2

_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 1_024 * 1_024


class CallError(Exception):
    """A call was not answered as it should be; its text names the kind of failure alone. `passing`: another try may
    be."""

    def __init__(self, cause: str, *, passing: bool = True) -> None:
        super().__init__(cause)
        self.passing = passing


class Calls:
    """To be closed."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._http = httpx2.AsyncClient(
            headers={"User-Agent": "replyline", "Content-Type": "application/json", **headers},
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            trust_env=False,
        )

    async def call(
        self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return the answer's status and body. Raises `CallError`."""
        answer = b""
        try:
            async with self._http.stream(method, url, content=body, headers=headers) as response:
                async for data in response.aiter_bytes():
                    answer += data
                    if len(answer) > _MOST_BYTES:
                        raise CallError(f"its answer has more than {_MOST_BYTES} bytes")
        except httpx2.HTTPError as error:
            raise CallError(type(error).__name__) from None
        return response.status_code, answer

    async def close(self) -> None:
        await self._http.aclose()
