"""Build from the settings what is alike wherever answers are made: in a worker's process, and where an evaluation asks
the engine alone."""

from collections.abc import Callable, Sequence
from typing import Final

from shared.conversation.history import History
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.embedder import Embedder
from shared.faq.fallback import DEFAULT_MIN_SCORE
from shared.faq.live import LiveFaq
from shared.process.extras import install_command
from shared.process.gpu import Gpus, find_gpus
from shared.settings import FaqSettings, Settings
from shared.telemetry.logs import get_logger
from shared.wire.session_key import SessionKey
from workers.engine import EngineInfo
from workers.engine.loading import LoadedModel
from workers.intake.prepare import Preparer
from workers.kv.cache import KvCache
from workers.prompt.budget import PromptBudget
from workers.prompt.conversation import PromptBuilder
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.policies import build_scheduler, make_window
from workers.schedule.scheduler import DECODE_STALL_MS, Scheduler, SchedulerLimits

_ENTRY_TOKENS: Final = 256  # of an FAQ entry in a prompt, at most


def make_scheduler(settings: Settings, info: EngineInfo, costs: CostModel) -> Scheduler:
    """Return the scheduler of the engine's slots, by the policy and the window that are set."""
    worker = settings.worker
    limits = SchedulerLimits(
        num_slots=info.num_slots,
        prefill_chunk_tokens=worker.prefill_chunk_tokens,
        max_prefill_rows=info.max_prefill_rows,
        stop_token_ids=info.stop_token_ids,
        decode_stall_ms=DECODE_STALL_MS,
        reuse_kv=settings.kv.enabled,
    )
    window = make_window(worker.window, limits)
    return build_scheduler(limits=limits, costs=costs, lengths=OutputLengths(longest=info.max_length), window=window)


def open_embedder(settings: FaqSettings) -> Embedder | None:
    """Return the embedder that the FAQ is searched by beside its terms. Raises `SettingsError` where the folder that is
    named holds no such model, or is not there and `embeddings_missing` is `refuse`."""
    folder = settings.embeddings_dir
    if folder is not None and settings.embeddings_missing == "terms" and not folder.exists():
        get_logger().warning(
            "embeddings_missing",
            folder=str(folder),
            action="the FAQ is searched by terms alone; a rephrasing may be missed",
        )
        return None
    return Embedder.named_by(settings)


def open_gpus(info: EngineInfo) -> Gpus | None:
    """Return the reader of the GPUs, for an engine that computes on one. Where they cannot be read the log says why."""
    if info.device != "gpu":
        return None
    found = find_gpus()
    if isinstance(found, Gpus):
        return found
    get_logger().warning(
        "gpu_unwatched", cause=found, action=f"look at nvidia-smi, or run: {install_command(info.name)}"
    )
    return None


def make_preparer(
    settings: Settings,
    model: LoadedModel,
    *,
    faq: LiveFaq,
    history: History,
    kv: KvCache | None,
    standing: Callable[[SessionKey], Sequence[int]],
) -> Preparer:
    """Return the preparer that makes a request a job: the FAQ, who answers, the prompt, the guard."""
    worker, answers = settings.worker, settings.answers
    return Preparer(
        settings=worker,
        tokenizer=model.tokenizer,
        prompts=PromptBuilder(
            model.template,
            system=worker.system_prompt,
            most_turns=worker.history_turns,
            budget=PromptBudget(_ENTRY_TOKENS, answers.history_tokens),
        ),
        policy=AnswerPolicy.of(
            answers, languages=model.languages, most=worker.grounding_entries, handoff=settings.handoff.enabled
        ),
        guarded=answers.guard,
        faq=faq,
        min_score=DEFAULT_MIN_SCORE,
        history=history,
        max_length=model.engine.info.max_length,
        kv=kv,
        standing=standing,
    )
