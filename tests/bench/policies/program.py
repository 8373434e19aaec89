"""`replyline bench policies`: one trace through the real worker under each policy, beside the same trace simulated.

For each policy a broker, a Redis and a worker of their own, no gateway: the requests are written to the bucket topics
at their times, the answers read from a reply topic. The engine's costs are measured once, before; every worker starts
with them, the trace's load is by them, and they are what is simulated with.
"""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal

from rich.console import Console

from ops.load.system import Broker, System
from ops.measure.environment import environment
from ops.measure.metrics_page import read_metrics
from ops.measure.others_cpu import OthersCpu
from ops.measure.runner import check_writable, progress_bar, write_json
from ops.simulate.simulator import Simulator
from ops.simulate.virtual_engine import STOP
from ops.stack.embedded import EMBEDDED_KAFKA_SETTINGS
from ops.stack.own_services import own_kafka
from ops.traces.costs import EngineCosts
from ops.traces.drawn import KINDS, make_trace
from ops.traces.least_work import LeastWork
from ops.traces.trace import Trace
from shared.errors import SettingsError
from shared.model.folder import CHATML, ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.wire.topics import BucketEdges
from tests.bench.policies.client import ask_all
from tests.bench.policies.costs import given_costs, measured_costs
from tests.bench.policies.engine import EngineFacts, MeteredEngine, facts_of_metrics
from tests.bench.policies.outcome import Counts, LiveAnswer, count_simulated
from tests.bench.policies.table import PolicyRow, row_of, show_rows
from tests.bench.policies.trace import Script, script_of
from tests.bench.policies.unending import unending
from workers.loading import chat_template
from workers.prompt.conversation import PromptBuilder
from workers.prompt.history_window import HistoryWindow
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.policies import POLICIES, build_scheduler
from workers.schedule.scheduler import SchedulerLimits

DEFAULT_POLICIES: Final = ("goodput", "edf", "fcfs-continuous", "static")
_MOST_SECONDS: Final = 3_600.0
_MOST_LOAD: Final = 100.0
_MOST_SLOTS: Final = 512
_MAX_LENGTH: Final = 2_048
_MAX_PREFILL_ROWS: Final = 8
_WHOLE_QUEUE: Final = 100_000
_FAKE_PREFILL_MS_PER_TOKEN: Final = 0.5
_FAKE_DECODE_MS_PER_STEP: Final = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesOptions:
    policies: tuple[str, ...]
    trace: str
    load: float
    seconds: float
    seed: int
    slots: int
    engine: Literal["onnx", "fake"]
    broker: Broker
    costs: Path | None
    json_path: Path | None

    def check(self) -> None:
        """Raises `SettingsError`, one line a fault."""
        faults = [f"--policy {name}: none of {', '.join(POLICIES)}" for name in self.policies if name not in POLICIES]
        if self.trace not in KINDS:
            faults.append(f"--trace {self.trace}: none of {', '.join(KINDS)}")
        for name, value, most in (
            ("--load", self.load, _MOST_LOAD),
            ("--seconds", self.seconds, _MOST_SECONDS),
            ("--slots", self.slots, _MOST_SLOTS),
        ):
            least = 1 if name == "--slots" else 0.1
            if not least <= value <= most:
                faults.append(f"{name} {value:g}: must be {least:g} to {most:g}")
        if faults:
            raise SettingsError("\n".join(faults))
        check_writable(self.json_path)


@dataclass(frozen=True, slots=True)
class Live:
    """What one live run gave."""

    answers: Sequence[LiveAnswer]
    engine: EngineFacts
    others_cpu: float


async def bench_policies(settings: Settings, options: PoliciesOptions, console: Console) -> None:
    with tempfile.TemporaryDirectory(prefix="replyline-costs-") as costs_dir, _endless(settings, options) as model_env:
        settings, worker_env = _worker(settings, options, Path(costs_dir))
        env = {**worker_env, **model_env}
        facts = environment(engine=f"{options.engine} {settings.model.dir.name}", broker=options.broker)
        if options.costs is None:
            console.print("measuring what the engine's steps take")
            kept = await measured_costs(settings, env)
        else:
            kept = given_costs(settings, options.costs)
        script = _script(settings, options, kept.costs)
        rows: list[PolicyRow] = []
        for policy in dict.fromkeys(options.policies):
            live = await _live(settings, options, {**env, "WORKER__POLICY": policy}, policy, script, console)
            kept.check_kept()
            counts, engine = _simulate(settings, policy, script.trace, kept.costs)
            rows.append(row_of(policy, live.answers, live.engine, counts, engine, others_cpu=live.others_cpu))
    print(show_rows(options.trace, options.load, rows, costs_others_cpu=kept.others_cpu))
    asked: dict[str, object] = {
        "trace": options.trace,
        "load": options.load,
        "seconds": options.seconds,
        "seed": options.seed,
    }
    asked |= {"slots": options.slots, "engine": options.engine}
    asked |= {"costs": kept.costs, "costs_others_cpu": round(kept.others_cpu, 4)}
    write_json(options.json_path, {**asked, "rows": rows, "environment": facts})


@contextmanager
def _endless(settings: Settings, options: PoliciesOptions) -> Iterator[dict[str, str]]:
    """The variables that have a worker's answers end where they are cut and nowhere before, as they do in the trace."""
    if options.engine == "fake":
        yield {}
        return
    with unending(settings.model.dir) as folder:
        yield {"MODEL__DIR": str(folder)}


def _worker(settings: Settings, options: PoliciesOptions, costs_dir: Path) -> tuple[Settings, dict[str, str]]:
    """The worker's settings, and the variables that give it them: the prompt is the question alone, the policy sees
    the whole queue, and what is left in it at the end is dropped."""
    changes: dict[str, object] = {
        "engine": options.engine,
        "slots": options.slots,
        "max_length": _MAX_LENGTH,
        "max_waiting": _WHOLE_QUEUE,
        "system_prompt": "",
        "grounding_entries": 0,
        "history_turns": 0,
        "drain_s": 0.0,
        "costs_dir": costs_dir,
    }
    if options.engine == "fake":
        changes["fake_prefill_ms_per_token"] = settings.worker.fake_prefill_ms_per_token or _FAKE_PREFILL_MS_PER_TOKEN
        changes["fake_decode_ms_per_step"] = settings.worker.fake_decode_ms_per_step or _FAKE_DECODE_MS_PER_STEP
    worker = settings.worker.model_copy(update=changes)
    env = {f"WORKER__{name.upper()}": str(value) for name, value in changes.items()}
    return settings.model_copy(update={"worker": worker}), env


def _script(settings: Settings, options: PoliciesOptions, costs: EngineCosts) -> Script:
    worker = settings.worker
    least = LeastWork(costs=costs, num_slots=worker.slots, prefill_chunk_tokens=worker.prefill_chunk_tokens)
    trace = make_trace(options.trace, load=options.load, seconds=options.seconds, seed=options.seed, least=least)
    if not trace.requests:
        raise SettingsError(f"--seconds {options.seconds:g}: nothing arrives in so short a time; give more")
    if options.engine == "fake":
        tokenizer, names = Tokenizer.byte_level(), CHATML
    else:
        tokenizer = Tokenizer.load(settings.model.dir)
        names = ModelFolder.open(settings.model.dir).manifest.chat_template
    template = chat_template(tokenizer, names)
    window = HistoryWindow(worker.history_window, worker.history_turns)
    prompts = PromptBuilder(template, system=worker.system_prompt, window=window)
    return script_of(
        trace,
        count=tokenizer.count,
        count_prompt=lambda text: len(prompts.build(turns=(), grounding=(), question=text, max_tokens=_MAX_LENGTH).ids),
        edges=BucketEdges(settings.limits.short_max_tokens, settings.limits.medium_max_tokens),
    )


# --- a run


async def _live(
    settings: Settings, options: PoliciesOptions, env: dict[str, str], policy: str, script: Script, console: Console
) -> Live:
    with System(settings=settings, broker=options.broker, env=env) as system:
        await system.start_services()
        others = OthersCpu()
        worker, metrics_url = await system.start_worker()
        kafka = own_kafka(settings.kafka, system.bootstrap)
        if options.broker == "embedded":
            fetch_max_wait_ms = int(EMBEDDED_KAFKA_SETTINGS["KAFKA__FETCH_MAX_WAIT_MS"])
            kafka = kafka.model_copy(update={"fetch_max_wait_ms": fetch_max_wait_ms})
        asking = settings.model_copy(update={"kafka": kafka})
        with progress_bar(console, f"{policy}: answers", len(script.texts)) as progress:
            answers = await ask_all(asking, script, progress)
        share = others.share(worker.process.pid)
        span_s = (now_unix_ms() - answers[0].due_unix_ms) / 1_000
        page = await asyncio.to_thread(read_metrics, metrics_url)
    return Live(answers, facts_of_metrics(page, span_s), share)


def _simulate(settings: Settings, policy: str, trace: Trace, costs: EngineCosts) -> tuple[Counts, EngineFacts]:
    """The same requests through the same scheduler, as `workers/__main__.py` builds it."""
    worker = settings.worker
    limits = SchedulerLimits(
        num_slots=worker.slots,
        prefill_chunk_tokens=worker.prefill_chunk_tokens,
        max_prefill_rows=min(_MAX_PREFILL_ROWS, worker.slots),
        stop_token_ids=frozenset({STOP}),
        max_running_tokens=worker.max_running_tokens,
        decode_stall_ms=worker.decode_stall_ms,
    )
    lengths = OutputLengths(longest=worker.max_length)
    model = CostModel.from_state(costs.table)
    engine = MeteredEngine(costs, 0.0, Random(0))
    scheduler = build_scheduler(policy, limits=limits, costs=model, lengths=lengths)
    run = Simulator(trace=trace, scheduler=scheduler, engine=engine, hints=False).run()
    end_ms = max(ending.released_ms for ending in run.endings)
    return count_simulated(run.endings), engine.facts(max(1.0, end_ms - trace.requests[0].arrival_ms) / 1_000)
