"""The front ends, and shared parts of their suites. Add a front end to `FRONT_ENDS` to include it."""

from dataclasses import dataclass

import msgpack

from tests.support.wire import JSON, MSGPACK, Form

PAGE = "https://shop.example"
STEP_MS = 10
LONG = 500  # tokens: five seconds


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """A front end, and input that its parser cannot read."""

    form: Form
    malformed: tuple[str | bytes, ...]
    malformed_code: str
    not_an_object: tuple[str | bytes, ...]
    other_frame: str | bytes
    """An erasure as JSON, in the kind of frame that the front end does not use itself."""

    @property
    def name(self) -> str:
        return self.form.name


FRONT_ENDS = [
    FrontEnd(
        form=JSON,
        malformed=(
            "",
            "{",
            "nonsense",
            '{"type":"pong"}}',
            '{"type":"pong","type',
            '{"type":"pong","x":' + "[" * 20_000,
        ),
        malformed_code="bad_json",
        not_an_object=("[]", '"pong"', "null", "1", "[" * 20_000),
        other_frame=b'{"type":"session.delete"}',
    ),
    FrontEnd(
        form=MSGPACK,
        malformed=(
            b"",
            b"\xc1",
            msgpack.packb({"type": "pong"})[:-1],
            msgpack.packb({"type": "pong"}) + b"\x00",
            b"\x82" + msgpack.packb("type") + msgpack.packb("pong") + msgpack.packb("x") + b"\x91" * 20_000,
        ),
        malformed_code="bad_msgpack",
        not_an_object=(b"\x90", msgpack.packb("pong"), b"\xc0", b"\x01", b"\x91" * 20_000),
        other_frame='{"type":"session.delete"}',
    ),
]
