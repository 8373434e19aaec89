"""A llama-server that is compared, and what it streams to one request, chunk by chunk."""

import http.client
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request

import msgspec

from ops.stack.own_pages import open_page
from ops.stack.processes import ServiceError
from shared.errors import SettingsError
from tests.support.servers.llama_server import Q4_0, LlamaServer

START: Final = "start"
_SLOT_TOKENS: Final = 2_048
_DATA: Final = b"data: "
_END: Final = b"[DONE]"
_SHOWN_BYTES: Final = 200
_TIMEOUT_S: Final = 600.0
_REACH_TIMEOUT_S: Final = 10.0
_ADDRESS: Final = re.compile(r"http://[^\s/:]+(:[0-9]{1,5})?/?")


def check_peer(peer: str) -> None:
    """Raise `SettingsError` if `--peer` is neither an address nor `start`."""
    if peer != START and not _ADDRESS.fullmatch(peer):
        raise SettingsError(f"--peer {peer}: write {START}, or the address of a llama-server: http://127.0.0.1:8090")


def reach_peer(peer: str | None) -> None:
    """Check that something answers at a running peer's address. Raises `ServiceError`."""
    if peer in {None, START}:
        return
    try:
        open_page(f"{str(peer).rstrip('/')}/health", timeout_s=_REACH_TIMEOUT_S).close()
    except HTTPError:
        return  # it answers: a model that is being loaded is 503
    except (OSError, http.client.HTTPException) as error:
        raise ServiceError(f"--peer {peer}: {error}; is a llama-server there?") from None


@asynccontextmanager
async def peer_at(peer: str, slots: int) -> AsyncIterator[str]:
    """Yield the peer's address. With `start` it is a new one, with this many slots and all cores and an empty cache: a
    running one may have cached earlier prompts. Raises `ServiceError`."""
    if peer != START:
        yield peer
        return
    async with LlamaServer(slots=slots, length=_SLOT_TOKENS, threads=os.cpu_count() or 1, model=Q4_0) as server:
        yield server.url.removesuffix("/v1")


def streamed(url: str, path: str, body: Mapping[str, object]) -> Iterator[Any]:
    """Ask greedily, with its own prompt cache; blocks. Raises `ServiceError`."""
    asked = {"temperature": 0.0, "stream": True, "cache_prompt": True, **body}
    headers = {"Content-Type": "application/json"}
    request = Request(f"{url.rstrip('/')}{path}", msgspec.json.encode(asked), headers)
    try:
        with open_page(request, timeout_s=_TIMEOUT_S) as response:
            for line in response:
                if line.startswith(_DATA) and not line.startswith(_DATA + _END):
                    yield msgspec.json.decode(line[len(_DATA) :])
    except HTTPError as error:
        said = error.read(_SHOWN_BYTES).decode(errors="replace")
        raise ServiceError(f"--peer {url} answers {error.code}: {said}") from None
    except (OSError, http.client.HTTPException, msgspec.DecodeError, KeyError, TypeError) as error:
        raise ServiceError(f"--peer {url}: {error}; is a llama-server there?") from error


def completion(url: str, ids: Sequence[int], new_tokens: int) -> Iterator[Any]:
    """Stream exactly `new_tokens` tokens, past the model's stop token. Raises `ServiceError`."""
    return streamed(url, "/completion", {"prompt": list(ids), "n_predict": new_tokens, "ignore_eos": True})
