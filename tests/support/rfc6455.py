"""WebSocket by hand, so that every rule of it can be broken: a client's handshake and frames, and a server's frames."""

from base64 import b64encode
from enum import IntEnum


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


def handshake(subprotocol: str | None, *, path: str = "/ws", **changed: str | None) -> bytes:
    """Return the request. A header is named with underscores; None leaves it out."""
    headers: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": b64encode(b"0123456789abcdef").decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": subprotocol,
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value is not None]
    return f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    reserved: int = 0,
    masked: bool = True,
    claimed: int | None = None,
    length_bytes: int | None = None,
) -> bytes:
    """Return a frame (section 5.2). `claimed` is the length in its header, `length_bytes` (0, 2, 8) the width of that
    field."""
    length = len(payload) if claimed is None else claimed
    width = length_bytes if length_bytes is not None else 0 if length < 126 else 2 if length < 65_536 else 8
    head = bytes([fin << 7 | reserved << 4 | opcode, masked << 7 | {0: length, 2: 126, 8: 127}[width]])
    head += length.to_bytes(width) if width else b""
    if not masked:
        return head + payload
    mask = b"\x5a\xc3\x01\x7f"
    whole_mask = (mask * (len(payload) // 4 + 1))[: len(payload)]
    covered = int.from_bytes(payload) ^ int.from_bytes(whole_mask)
    return head + mask + covered.to_bytes(len(payload))


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    """Return a server's whole frames: opcode and payload. Raises `AssertionError` for a frame that our server must not
    send."""
    frames, place = [], 0
    while place + 2 <= len(data):
        first, length = data[place], data[place + 1]
        assert first & 0xF0 == 0x80, "a final frame with nothing reserved"
        assert length < 128, "a frame that is not masked"
        start = place + 2
        if length > 125:
            width = 2 if length == 126 else 8
            length, start = int.from_bytes(data[start : start + width]), start + width
        if start + length > len(data):
            break
        frames.append((first & 0x0F, data[start : start + length]))
        place = start + length
    return frames
