"""A body is decompressed by its `Content-Encoding`, at every HTTP door."""

import bz2
import gzip
import json
import zlib
from typing import Any

import httpx2
import pytest

from gateway.doors.chatwoot.door import ChatwootDoor
from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import http_of
from tests.support.servers.chatwoot import SECRET
from tests.unit.gateway.doors.test_refused_bodies import DOORS


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-zlib.MAX_WBITS)


def members(data: bytes) -> bytes:
    return gzip.compress(data[:20]) + gzip.compress(data[20:]) + bytes(7)


READ: dict[str, Any] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP ": members,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "identity": bytes,
    "gzip, identity": gzip.compress,
    "deflate, gzip": lambda data: gzip.compress(raw_deflate(data)),
    "": bytes,
}
BOMB = gzip.compress(b" " * 1_100_000)
REFUSED: dict[str, tuple[bytes, int, str]] = {
    "br": (b"\x8b\x03\x80{}\x03", 415, "unsupported_encoding"),
    "zstd": (b"(\xb5/\xfd", 415, "unsupported_encoding"),
    "bzip2": (bz2.compress(b"{}"), 415, "unsupported_encoding"),
    "gzip, gzip, gzip": (gzip.compress(b"{}"), 415, "unsupported_encoding"),
    "gzip, br": (gzip.compress(b"{}"), 415, "unsupported_encoding"),
    "gzip": (BOMB, 413, "body_too_large"),
    "gzip, gzip": (gzip.compress(BOMB), 413, "body_too_large"),
    "deflate": (b"\xff{}", 400, "bad_encoding"),
    "x-gzip": (gzip.compress(b"") * 100 + b"\x1f\x8b", 400, "bad_encoding"),
}


def client_of(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://gateway")


@pytest.mark.parametrize("door", DOORS)
async def test_a_compressed_body_is_read(door: str) -> None:
    make, path, sound = DOORS[door]
    async with client_of(make(Edge(kafka_is_away=True)).app()) as client:
        for number, (coding, compress) in enumerate(READ.items()):
            body = compress(json.dumps(sound | {"id": f"c{number}"}).encode())
            got = await client.post(path, content=body, headers={"content-encoding": coding})
            assert (coding, got.status_code) == (coding, 200)


@pytest.mark.parametrize("door", [*DOORS, "conversations", "chatwoot"])
async def test_a_body_of_an_unknown_or_wrong_encoding_is_refused(door: str) -> None:
    edge, nothing = Edge(kafka_is_away=True), Any
    if door == "chatwoot":
        app = ChatwootDoor(http=http_of(edge), producer=nothing, topic="t", key=SECRET).app()  # type: ignore[arg-type]
        path = "/chatwoot"
    else:
        make, path, _ = DOORS.get(door, (DOORS["responses"][0], "/v1/conversations", {}))
        app = make(edge).app()
    async with client_of(app) as client:
        for coding, (body, status, code) in REFUSED.items():
            got = await client.post(path, content=body, headers={"content-encoding": coding})
            told = code if door == "ai sdk" else got.json()["error"]["code"]
            assert (coding, got.status_code, told) == (coding, status, code)
            assert got.headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)
