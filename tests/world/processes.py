"""The gateways and workers as production builds them, and what starts them again when they end."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal

import gateway.__main__ as gateway_main
import workers.__main__ as worker_main
from shared.errors import ReplylineError
from shared.process.lifetime import Stopped
from shared.settings import Settings
from tests.world.plan import CANARY
from tests.world.virtual.loop import VirtualLoop
from tests.world.virtual.node import Node

Kind = Literal["gateway", "worker"]
WORKERS: Final = 2
PARTITIONS: Final = 4
STEP_LIMIT_S: Final = 2.0
SLOTS: Final = 4
JOINED_PROMPT: Final = "You answer for the shop Harbor & Vine."
"""Text of the joining worker, which differs from the others' text as during a rolling upgrade."""
CANARY_REVISION: Final = "fake-2"
QUOTA: Final = 80
_AGAIN_S: Final = 0.5
_SPOILED: Final = 3
_FIRST_PORT: Final = 9_000
_FIRST_STATUS_PORT: Final = 9_100
_ASK: Final = b"GET /drain HTTP/1.1\r\nHost: worker\r\n\r\n"
_ASK_AGAIN_S: Final = 0.1


def port_of(gateway: int) -> int:
    """Return the port of a gateway."""
    return _FIRST_PORT + gateway


def settings_of(kind: Kind, number: int) -> Settings:
    """Return the settings of a process: production's, except those that `tests/support/switches.py` names."""
    changes: dict[str, dict[str, Any]] = {
        "kafka": {
            "bootstrap_servers": "kafka:9092,kafka:9093,kafka:9094",
            "session_timeout_ms": 4_000,
            "request_timeout_ms": 1_000,
        },
        "redis": {"url": "redis://redis:6379/0"},
        "kv": {"host_mib": 0 if number == 1 else 256},  # so that one worker loads all KV from Redis
        "gateway": {
            "reply_partition": number if kind == "gateway" else 0,
            "port": port_of(number) if kind == "gateway" else 0,
            "metrics_port": 0,
            "max_inflight_per_connection": 32,
        },
        "auth": {"jwks": "https://issuer/keys"},
        "quotas": {"subject_per_minute": QUOTA},
        "handoff": {"enabled": True},
        "answers": {"guard": False},
        "worker": {
            "engine": "fake",
            "metrics_port": _FIRST_STATUS_PORT + number if kind == "worker" else 0,
            "fake_decode_ms_per_step": 100.0,
            "fake_prefill_ms_per_token": 0.2,
            "fake_mixes": number % 2 == 1,
            "slots": SLOTS,
            "lane": "canary" if number == CANARY else "champion",
            "instance_id": {0: "static", CANARY: "canary"}.get(number, "") if kind == "worker" else "",
            "step_limit_s": STEP_LIMIT_S,
            **({"system_prompt": JOINED_PROMPT} if number == WORKERS else {}),
        },
    }
    return Settings(**changes)  # type: ignore[arg-type]


class Process:
    """A process. `crashed` is called with its end if it was not asked to end, `died` if poison ended it."""

    def __init__(
        self, loop: VirtualLoop, kind: Kind, number: int, crashed: Callable[[str], None], died: Callable[[], None]
    ) -> None:
        self.kind, self.number = kind, number
        self._loop, self._crashed, self._died = loop, crashed, died
        self._settings = settings_of(kind, number)
        self._starts = 0
        self._down_s: float | None = _AGAIN_S
        self.node: Node | None = None

    def start(self) -> None:
        """Start it unless it is running."""
        if self.node is None or not self.node.alive:
            self._down_s = _AGAIN_S
            self._starts += 1
            self.node = node = self._loop.node(f"{self.kind}-{self.number}.{self._starts}")
            node.ended, node.deaths = self._again, self._died
            self._stop = asyncio.Event()
            serve = gateway_main.serve if self.kind == "gateway" else worker_main.serve
            task = self._loop.start(node, serve(self._settings, self._stop))
            task.add_done_callback(self._ended, context=self._loop.world.context.copy())

    def kill(self, down_s: float) -> None:
        """End it like SIGKILL, and start it again after `down_s`."""
        if self.node is not None and self.node.alive:
            self._down_s = down_s
            self.node.kill()

    def ask_to_stop(self) -> None:
        """Send the equivalent of SIGTERM; it is started again."""
        if self.node is not None and self.node.alive:
            self._loop.call_soon(self._stop.set, context=self.node.context)

    def leave(self, down_s: float | None) -> None:
        """Drain it, then end it. Start it again after `down_s`; without `down_s` it stays down."""
        if self.node is not None and self.node.alive:
            self._down_s = down_s
            self._loop.start(self._loop.node("operator"), self._leave(self.node))

    async def _leave(self, node: Node) -> None:
        while node.alive and not await _drained(_FIRST_STATUS_PORT + self.number):  # noqa: ASYNC110 - polls its status
            await asyncio.sleep(_ASK_AGAIN_S)
        if node is self.node:
            self.ask_to_stop()

    def freeze(self, seconds: float) -> None:
        """Pause it like SIGSTOP for this long."""
        if self.node is not None:
            self.node.freeze(seconds)

    def hang(self) -> None:
        """Make its engine's next step never return."""
        if self.node is not None and self.node.hangs_since_s is None:
            self.node.hangs_since_s = self._loop.now

    def spoil(self) -> None:
        """Make its engine refuse the next import of KV."""
        if self.node is not None:
            self.node.spoils = _SPOILED

    def _again(self) -> None:
        if self._down_s is not None:
            self._loop.after(self._down_s, self.start)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        assert self.node is not None, "it was started"
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, (ReplylineError, Stopped)):
            self._crashed(f"{self.node.name}: {error!r}")
        self.node.bury()
        self._again()


async def _drained(port: int) -> bool:
    """Ask a worker to drain; return whether it has."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_ASK)
        page = await reader.read()
        writer.close()
    except OSError:
        return False  # it was killed, or does not listen yet
    return b'"drained"' in page
