"""Build from the settings the parts that answer questions, for a worker process and for an evaluation of the engine
alone.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from shared.conversation.history import History
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.embedder import Embedder
from shared.faq.fallback import DEFAULT_MIN_SCORE
from shared.faq.live import LiveFaq
from shared.process.extras import install_command
from shared.process.gpu import Gpus, find_gpus
from shared.settings import FaqSettings, Settings
from shared.settings.credential_files import read_password
from shared.telemetry.logs import get_logger
from shared.wire.lanes import SHADOW
from shared.wire.session_key import SessionKey
from workers.engine import EngineInfo, ModelInfo
from workers.engine.load_model import LoadedModel
from workers.engine.upstream.model import UpstreamModel
from workers.intake.prepare import Preparer
from workers.kv.cache import KvCache, open_cache
from workers.prompt.conversation import PromptBudget, PromptBuilder, Prompts
from workers.prompt.messages import MessageBuilder
from workers.schedule.costs import CostModel
from workers.schedule.goodput import build_scheduler, make_window
from workers.schedule.goodput.goodput import Goodput
from workers.schedule.lengths import OutputLengths
from workers.schedule.scheduler import DECODE_STALL_MS, Scheduler, SchedulerLimits
from workers.schedule.streams import Paces, Streams
from workers.serving.drafts import Drafts, Progress
from workers.serving.engine_loop import EngineLoop, StepWatch
from workers.serving.engine_step import keep_nothing
from workers.serving.loaded_versions import ServedVersion

if TYPE_CHECKING:
    from workers.serving.upstream_loop import UpstreamLoop

ENTRY_TOKENS: Final = 256  # maximum tokens of an FAQ entry in a prompt


def make_scheduler(settings: Settings, info: EngineInfo, costs: CostModel) -> Scheduler:
    """Return the scheduler of the engine's slots, with the configured policy and window."""
    worker = settings.worker
    limits = SchedulerLimits(
        num_slots=info.num_slots,
        prefill_chunk_tokens=worker.prefill_chunk_tokens,
        max_prefill_rows=info.max_prefill_rows,
        stop_token_ids=info.stop_token_ids,
        decode_stall_ms=DECODE_STALL_MS,
        reuse_kv=settings.kv.enabled,
        mixes=info.mixes,
        speculation=worker.speculation if info.verifies else "off",
    )
    window = make_window(worker.window, limits)
    lengths = OutputLengths(longest=info.max_length)
    return build_scheduler(
        limits=limits, costs=costs, lengths=lengths, window=window, long_share=worker.long_slots_share
    )


def make_served(
    settings: Settings,
    revision: str,
    model: LoadedModel | UpstreamModel,
    costs: CostModel,
    *,
    faq: LiveFaq,
    history: History,
    publish: Callable[[list[Progress]], None],
    changed: Callable[[], None],
) -> ServedVersion:
    """Return a loaded model as a version that can serve.

    Args:
        settings: the process's settings.
        revision: the version's name.
        model: the loaded model.
        costs: the engine's measured costs.
        faq: the FAQ.
        history: the conversations' turns.
        publish: called with new text and ends of answers, on any thread.
        changed: called when the version's outlook has changed, on any thread.
    """
    kv = None
    # An upstream caches its own KV; a shadow's KV would not be used again.
    if settings.kv.enabled and isinstance(model, LoadedModel) and settings.worker.lane != SHADOW:
        kv = open_cache(settings, model.info, costs)
    loop = _make_loop(settings, model, costs, kv=kv, publish=publish, changed=changed)
    prompts = make_prompts(settings, model)
    preparer = _make_preparer(
        settings, revision, model, prompts=prompts, faq=faq, history=history, kv=kv, standing=loop.standing
    )
    return ServedVersion(
        revision=revision,
        model=model,
        costs=costs,
        engine_loop=loop,
        prompts=prompts,
        kv=kv,
        prepare=preparer.prepare,
        encode=model.tokenizer.encode_text,
    )


def _make_loop(
    settings: Settings,
    model: LoadedModel | UpstreamModel,
    costs: CostModel,
    *,
    kv: KvCache | None,
    publish: Callable[[list[Progress]], None],
    changed: Callable[[], None],
) -> "EngineLoop | UpstreamLoop":
    """Return the loop that computes the answers: the engine's, or the one for upstream servers."""
    if isinstance(model, UpstreamModel):
        return _make_upstream_loop(settings, model.info, costs, publish=publish, changed=changed)
    scheduler = make_scheduler(settings, model.info, costs)
    return EngineLoop(
        engine=model.engine,
        scheduler=scheduler,
        costs=costs,
        drafts=Drafts(roster=scheduler, publish=publish, interval_s=settings.worker.reply_interval_ms / 1_000),
        changed=changed,
        watch=StepWatch(settings.step_limit_s),
        keep=kv.keep if kv is not None else keep_nothing,
    )


def _make_upstream_loop(
    settings: Settings,
    info: ModelInfo,
    costs: CostModel,
    *,
    publish: Callable[[list[Progress]], None],
    changed: Callable[[], None],
) -> "UpstreamLoop":
    from workers.engine.upstream.choice import Choice  # an HTTP client, which no other engine uses
    from workers.engine.upstream.client import UpstreamClient
    from workers.serving.upstream_loop import UpstreamLoop

    upstream, lengths = settings.upstream, OutputLengths(longest=info.max_length)
    policy = Goodput(costs, lengths, num_slots=info.num_slots)
    streams = Streams(policy, lengths=lengths, num_slots=info.num_slots)
    key_file = upstream.key_file
    return UpstreamLoop(
        client=UpstreamClient(
            key=None if key_file is None else read_password(key_file), silence_s=upstream.silence_ms / 1_000
        ),
        choice=Choice(upstream.url, places=settings.worker.slots_without_gpu),
        streams=streams,
        paces=Paces(costs),
        drafts=Drafts(roster=streams, publish=publish, interval_s=settings.worker.reply_interval_ms / 1_000),
        changed=changed,
        model=upstream.model,
        priority=upstream.priority,
        promise_ms=settings.promise.first_token_ms,
    )


def open_embedder(settings: FaqSettings) -> Embedder | None:
    """Return the embedder that searches the FAQ in addition to its terms; None if none is configured.

    Raises:
        SettingsError: the folder has no such model, or it does not exist and `embeddings_missing` is `refuse`.
    """
    folder = settings.embeddings_dir
    if folder is not None and settings.embeddings_missing == "terms" and not folder.exists():
        get_logger().warning(
            "embeddings_missing",
            folder=str(folder),
            action="the FAQ is searched by terms alone; a rephrasing may be missed",
        )
        return None
    return Embedder.named_by(settings)


def open_gpus(info: ModelInfo) -> Gpus | None:
    """Return the reader of the GPUs if the engine uses one. If they cannot be read, log why."""
    if info.device != "gpu":
        return None
    found = find_gpus()
    if isinstance(found, Gpus):
        return found
    get_logger().warning(
        "gpu_unwatched", cause=found, action=f"look at nvidia-smi, or run: {install_command(info.name)}"
    )
    return None


def make_prompts(settings: Settings, model: LoadedModel | UpstreamModel) -> Prompts:
    """Return the builder of the model's prompts."""
    system, most_turns = settings.worker.system_prompt, settings.worker.history_turns
    budget = PromptBudget(ENTRY_TOKENS, settings.answers.history_tokens)
    if isinstance(model, UpstreamModel):
        return MessageBuilder(system=system, most_turns=most_turns, budget=budget)
    return PromptBuilder(model.template, system=system, most_turns=most_turns, budget=budget)


def _make_preparer(
    settings: Settings,
    revision: str,
    model: LoadedModel | UpstreamModel,
    *,
    prompts: Prompts,
    faq: LiveFaq,
    history: History,
    kv: KvCache | None,
    standing: Callable[[SessionKey], Sequence[int]],
) -> Preparer:
    """Return the preparer that turns a request into a job: FAQ search, who answers, prompt, guard."""
    worker, answers = settings.worker, settings.answers
    return Preparer(
        revision=revision,
        settings=worker,
        tokenizer=model.tokenizer,
        prompts=prompts,
        policy=AnswerPolicy.of(
            answers,
            languages=() if settings.edge.quote else model.languages,
            most=worker.grounding_entries,
            handoff=settings.handoff.enabled,
        ),
        guarded=answers.guard,
        paraphrases=isinstance(model, UpstreamModel),
        faq=faq,
        min_score=DEFAULT_MIN_SCORE,
        history=history,
        max_length=model.info.max_length,
        kv=kv,
        standing=standing,
    )
