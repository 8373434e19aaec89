"""A model version as a worker serves it: all that hangs on the model, under the name that answers bear."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from shared.telemetry.faults import contain_each
from shared.wire.messages import ReplyDone
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey
from workers.engine import ModelInfo
from workers.kv.cache import KvCache
from workers.prompt.conversation import Prompts
from workers.request.job import Job
from workers.serving.engine_loop import EngineLoop
from workers.serving.upstream_loop import UpstreamLoop

Prepare = Callable[[Order, float], Awaitable[Job | ReplyDone]]


@dataclass(slots=True, kw_only=True, eq=False)
class Served:
    """`revision` is the version's name. `prepare` makes a request a job that `engine_loop` computes; `encode` makes a
    text its tokens."""

    revision: str
    info: ModelInfo
    engine_loop: EngineLoop | UpstreamLoop
    prompts: Prompts
    kv: KvCache | None
    prepare: Prepare
    encode: Callable[[str], Sequence[int]]

    def start(self) -> None:
        """Start what looks for kept KV; to be called before the first request is prepared."""
        if self.kv is not None:
            self.kv.start()

    def erase(self, session: SessionKey, generation: int) -> None:
        """Forget what is held of a conversation's earlier generations."""
        contain_each(
            "record",
            lambda: self.engine_loop.forget(session),
            lambda: None if self.kv is None else self.kv.erase(session, generation),
            lambda: self.prompts.forget(session),
        )

    def close(self) -> None:
        """Write the KV that is to be kept, within a limit."""
        if self.kv is not None:
            self.kv.close()
