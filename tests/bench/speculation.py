"""`replyline bench speculation`: the engine's speed on the shop's answers, by setting of `worker.speculation`.

The packaged questions that the model answers, each with its FAQ entries, greedy, to the model's own end, in a closed
loop of 1, 4, 8 and 16 rows. Steps with a prompt are left out: they verify nothing. Each round begins with nothing
learned.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, get_args

from rich.console import Console

from ops.evaluation.judging.questions import PACKAGED_QUESTIONS, read_questions
from shared.errors import SettingsError
from shared.faq import FaqIndex
from shared.faq.answer_policy import AnswerPolicy, Ground
from shared.faq.words.fold import plain
from shared.process.clock import monotonic_s, now_unix_ms
from shared.process.hardware import usable_cores
from shared.settings import PREFIX, Settings, SpeculationKind
from shared.wire.deadline import Deadline
from shared.wire.session_key import SessionKey
from tests.bench.cell import FAILED, Bench, Figures, Target, standing
from workers.building import make_prompts, make_scheduler
from workers.engine import Sampling
from workers.engine.load_model import LoadedModel, load_model
from workers.prompt.conversation import Prompt
from workers.schedule.sequence import Sequence as Row
from workers.schedule.speculation.speculation import SOURCES
from workers.serving.calibration import costs_key, load_or_calibrate, table_path
from workers.serving.engine_step import keep_nothing, learn_costs, run_step

ROWS: Final = (1, 4, 8, 16)
TARGETS: Final = tuple(
    Target(cell="own", base="off", figure=f"decode_tok_s {rows} rows", value=value, at_least=True)
    for rows, value in zip(ROWS, (1.6, 1.2, 1.0, 1.0), strict=True)
)
_MAX_OUTPUT_TOKENS: Final = 160
_FAR_MS: Final = 3_600_000


async def bench_speculation(settings: Settings, bench: Bench, answers: int, console: Console) -> None:
    """Raises `SettingsError` if the engine verifies nothing, `ModelError`."""
    settings = with_worker(settings, slots=max(ROWS))
    model = load_model(settings)
    if not model.info.verifies:
        raise SettingsError(f"{PREFIX}WORKER__ENGINE={model.info.name}: verifies no tokens; set it to native")
    prompts = shop_prompts(settings, model, answers)
    asked = _Asked(settings, model, prompts)
    cells = [
        standing(kind, partial(asked.measure, kind), bases=() if kind == "off" else ("off",))
        for kind in get_args(SpeculationKind)
    ]
    await bench.run(cells, console, answers=len(prompts), rows=ROWS)


def with_worker(settings: Settings, **changed: Any) -> Settings:
    """Return the settings with others of the worker."""
    return settings.model_copy(update={"worker": settings.worker.model_copy(update=changed)})


def shop_prompts(settings: Settings, model: LoadedModel, most: int) -> list[Prompt]:
    """Return the prompts of the first packaged questions that the model answers."""
    index = FaqIndex.load(settings.faq.path)
    policy = AnswerPolicy.of(
        settings.answers, languages=model.languages, most=settings.worker.grounding_entries, handoff=True
    )
    builder, prompts = make_prompts(settings, model), list[Prompt]()
    for question in read_questions(PACKAGED_QUESTIONS, index.entries):
        asked = plain(question.question)
        found = index.find(asked, k=3, previous=(), vector=None)
        decision = policy.decide(asked, found.hits, found.parts, may_ask=True)
        if isinstance(decision, Ground) and not question.history and len(prompts) < most:
            build = builder.builder_for(SessionKey("t", question.id))
            room = model.info.max_length - _MAX_OUTPUT_TOKENS
            prompts.append(build(turns=(), grounding=decision.grounding, question=question.question, max_tokens=room))
    return prompts


@dataclass(slots=True)
class _Asked:
    """`texts`: the tokens of each answer, the same in each cell; another text counts as failed."""

    settings: Settings
    model: LoadedModel
    prompts: Sequence[Prompt]
    texts: dict[int, list[int]] = field(default_factory=dict)

    async def measure(self, kind: SpeculationKind, number: int) -> Figures:
        del number
        return await asyncio.to_thread(self._measured, kind)

    def _measured(self, kind: SpeculationKind) -> Figures:
        figures: dict[str, float | None] = {}
        differing = 0
        proposed, accepted = dict.fromkeys(SOURCES, 0), dict.fromkeys(SOURCES, 0)
        settings = with_worker(self.settings, speculation=kind)
        for rows in ROWS:
            run = ClosedLoop(settings, self.model, rows)
            run.answer(self.prompts)
            figures[f"decode_tok_s {rows} rows"] = run.tokens / run.seconds
            figures[f"tokens a row and step, {rows} rows"] = run.tokens / run.row_steps
            differing += sum(self.texts.setdefault(at, ids) != ids for at, ids in enumerate(run.texts))
            for source in SOURCES:
                proposed[source] += run.proposed[source]
                accepted[source] += run.accepted[source]
        for source in SOURCES:
            figures[f"verified, from {source}"] = float(proposed[source])
            figures[f"accepted share, {source}"] = accepted[source] / proposed[source] if proposed[source] else None
        return figures | {FAILED: float(differing)}


class ClosedLoop:
    """A closed loop of `rows` answers over a new scheduler."""

    def __init__(self, settings: Settings, model: LoadedModel, rows: int) -> None:
        self._model = model
        self._rows = rows
        key = costs_key(model.info, threads=settings.worker.threads or usable_cores())
        path = table_path(settings.worker.costs_dir, model.info.name, key)
        self._costs, _ = load_or_calibrate(path, key, model.engine)
        self._scheduler = make_scheduler(settings, model.info, self._costs)
        self.tokens = self.row_steps = 0
        self.seconds = 0.0
        self.texts: list[list[int]] = []
        self.proposed, self.accepted = dict.fromkeys(SOURCES, 0), dict.fromkeys(SOURCES, 0)

    def answer(self, prompts: Sequence[Prompt]) -> None:
        sequences = [_sequence(number, prompt) for number, prompt in enumerate(prompts)]
        waiting = iter(sequences)
        while True:
            while self._scheduler.num_running + self._scheduler.num_waiting < self._rows:
                if (sequence := next(waiting, None)) is None:
                    break
                self._scheduler.add(sequence, now_unix_ms())
            if not self._step():
                break
        self.texts = [sequence.output_ids for sequence in sequences]

    def _step(self) -> bool:
        """Run one step; return False if no row is left. The time that the scheduler takes counts."""
        begun_s = monotonic_s()
        step = self._scheduler.next_step(now_unix_ms())
        if step is None:
            return False
        result = run_step(self._model.engine, step, keep_nothing)
        self._scheduler.complete(step, result.prefill_tokens, result.decode_tokens, now_unix_ms())
        for place in range(1, max(map(len, result.verified), default=0)):
            self._scheduler.add_accepted(step, result.verified, place)
        learn_costs(self._costs, step, result)
        if not step.prefill:
            self.seconds += monotonic_s() - begun_s
            self.row_steps += len(step.decode)
            self.tokens += sum(map(len, result.verified)) if result.verified else len(step.decode)
        for source, row, tokens in zip(step.sources, step.decode, result.verified, strict=False):
            self.proposed[source] += len(row.proposed)
            self.accepted[source] += len(tokens) - 1
        return True


def _sequence(number: int, prompt: Prompt) -> Row:
    now = int(now_unix_ms())
    return Row(
        request_id=f"r{number}",
        prompt_ids=prompt.ids,
        max_output_tokens=_MAX_OUTPUT_TOKENS,
        sampling=Sampling(),
        deadline=Deadline(first_token_unix_ms=now + _FAR_MS, deadline_unix_ms=now + _FAR_MS),
        arrived_unix_ms=now,
        session=SessionKey("t", f"s{number}"),
        shared_tokens=prompt.shared_tokens,
        shop_spans=prompt.shop_spans,
    )
