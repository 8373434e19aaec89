"""One run: questions, what is asked with them, and all that a report says of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from ops.evaluation.asking import Ask, Gateway, ask_all
from ops.evaluation.in_process import engine_alone
from ops.evaluation.judging.fit import Fit
from ops.evaluation.judging.judge import judge
from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.result import Figures, Judged
from ops.evaluation.judging.retrieval import find
from ops.evaluation.own_system import Variant, own_system
from ops.measure.environment import Environment
from shared.faq import FaqIndex
from shared.faq.answer_policy import Thresholds
from shared.faq.vectors import Embed
from shared.settings import Settings


class Rung(Struct, frozen=True, kw_only=True):
    """One variant of a ladder: what it is, and its shares."""

    name: str
    figures: Figures


class Run(Struct, frozen=True, kw_only=True):
    """`judged` is of the whole system, or of what stood at the address; `ladder` has the variants before it."""

    command: str
    split: str
    asked: str
    thresholds: Thresholds
    environment: Environment
    judged: tuple[Judged, ...]
    figures: Figures
    ladder: tuple[Rung, ...] = ()
    fit: Fit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks the same questions of one system after another."""

    settings: Settings
    questions: Sequence[Question]
    index: FaqIndex
    clients: int
    alone: bool = False
    embed: Embed | None = None

    async def own(self, variant: Variant, progress: Callable[[int], None]) -> list[Judged]:
        """Of a system of its own, or (`alone`) of an engine in this process. Raises `ServiceError`, `ModelError`."""
        entries = self.index.entries
        started = engine_alone if self.alone else own_system
        async with started(self.settings, variant, clients=self.clients, entries=entries) as ask:
            return await self._judged(ask, progress)

    async def at(self, url: str, token: str | None, progress: Callable[[int], None]) -> list[Judged]:
        """Of a running one. Raises `ConnectFailed`."""
        return await self._judged(Gateway(url=url, token=token).ask, progress)

    async def _judged(self, ask: Ask, progress: Callable[[int], None]) -> list[Judged]:
        given = await ask_all(self.questions, ask, clients=self.clients, progress=progress)
        found = find(self.questions, self.index, self.embed)
        return [
            Judged(question=question, given=answer, verdict=judge(question, answer), found=hits)
            for question, answer, hits in zip(self.questions, given, found, strict=True)
        ]
