"""A model version as a worker serves it: all that hangs on the model, under the name that answers bear."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from shared.telemetry.faults import contain_each
from shared.wire.messages import ReplyDone
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey
from workers.engine import ModelInfo
from workers.engine.load_model import LoadedModel
from workers.engine.upstream.model import UpstreamModel
from workers.kv.cache import KvCache
from workers.prompt.conversation import Prompts
from workers.request.job import Job
from workers.schedule.costs import CostModel
from workers.serving.engine_loop import EngineLoop
from workers.serving.upstream_loop import UpstreamLoop

Prepare = Callable[[Order, float], Awaitable[Job | ReplyDone]]


@dataclass(slots=True, kw_only=True, eq=False)
class Served:
    """`revision` is the version's name. `prepare` makes a request a job that `engine_loop` computes; so many are being
    prepared. `costs` are what `engine_loop` plans by. `encode` makes a text its tokens."""

    revision: str
    model: LoadedModel | UpstreamModel
    costs: CostModel
    engine_loop: EngineLoop | UpstreamLoop
    prompts: Prompts
    kv: KvCache | None
    prepare: Prepare
    encode: Callable[[str], Sequence[int]]
    num_preparing: int = field(default=0, init=False)

    @property
    def info(self) -> ModelInfo:
        return self.model.info

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

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Hold the version while a request is made a job of it."""
        self.num_preparing += 1
        try:
            yield
        finally:
            self.num_preparing -= 1

    def close(self) -> None:
        """Write the KV that is to be kept, within a limit, and give back the engine's memory unless it hangs."""
        if self.kv is not None:
            self.kv.close()
        hangs = isinstance(self.engine_loop, EngineLoop) and self.engine_loop.computes
        if isinstance(self.model, LoadedModel) and not hangs:
            self.model.engine.close()
