"""`replyline bench stream`: how much of the engine's speed the whole system keeps.

Streaming clients in a closed loop on the onnx engine, with embedded Kafka, gateway, worker and client on this machine;
and the engine alone with its batch kept full and nothing else running, before, between and after: no system can be
faster. Both greedy, the same prompts, and answers of the same length: the model's own ends do not count.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from rich.console import Console

from ops.load.clients import Load, Question
from ops.load.figures.outcome import Outcome, steady_tokens_per_s
from ops.load.figures.report import LoadReport, summarise
from ops.load.system import System
from ops.measure.environment import environment
from ops.measure.program import run_program
from ops.measure.quantiles import median
from ops.measure.runner import check_writable, markdown, progress_bar, verdict, write_json
from ops.texts.prompts import fit
from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.settings import PREFIX, Settings
from tests.bench.bare_engine import BareRun
from tests.bench.unending import unending

RATIO_TARGET: Final = 0.90
# llama-server, SmolLM2-135M-Instruct Q4_0, 8 clients, ~93-token prompts, 64 new tokens: measured once, elsewhere, on
# the same type of machine (2 vCPU, Zen 5). It is printed for comparison, not measured here.
LLAMA_SERVER: Final = {"tok_s": 354.0, "ttft_p50_ms": 456.0}
_OPENING: Final = "Write a long and detailed guide for the staff of our shop. Explain each of these words in full:"
_QUESTION_TOKENS: Final = 80  # and nine of the chat template
_BARE_BATCHES: Final = 4
_BARE_S: Final = 300.0
_REVISION_CHARS: Final = 12


class StreamRound(Struct, frozen=True, kw_only=True):
    """`tok_s` is the steady rate, while every client has work; `wall_tok_s` counts start and end too. `failed`: not by
    the model, or not of the length that was asked; the times are of the model's."""

    tok_s: float
    wall_tok_s: float
    report: LoadReport
    failed: int
    same_text: int
    compared: int


async def bench_stream(
    settings: Settings,
    console: Console,
    *,
    clients: int,
    requests: int,
    max_output_tokens: int,
    rounds: int,
    json_path: Path | None,
) -> None:
    if settings.worker.engine != "onnx":
        raise SettingsError(
            f"{PREFIX}WORKER__ENGINE={settings.worker.engine}: this bench is of the onnx engine; unset it"
        )
    check_writable(json_path)
    manifest = ModelFolder.open(settings.model.dir).manifest
    model = f"{settings.model.dir.name}, revision {manifest.revision[:_REVISION_CHARS]}"
    facts = environment(engine=f"onnx {settings.model.dir.name}", broker="embedded")
    count = Tokenizer.load(settings.model.dir).count
    texts = [fit(_OPENING, _QUESTION_TOKENS, number, count) for number in range(requests + 2 * clients)]
    measured: list[StreamRound] = []
    with unending(settings.model.dir) as folder:
        env = _env(clients, folder)
        bare = [await _bare(texts, env, clients, max_output_tokens, console)]
        for number in range(rounds):
            console.print(f"round {number + 1} of {rounds}")
            measured.append(await _round(settings, env, texts, clients, max_output_tokens, bare[0].answers, console))
            bare.append(await _bare(texts, env, clients, max_output_tokens, console))
    print(f"{model}; every answer of {max_output_tokens} tokens, no stop token heeded\n")
    _print(measured, bare, clients)
    result = {"model": model, **_result(measured, bare), "rounds": measured, "bare": bare, "environment": facts}
    write_json(json_path, result)


def _env(clients: int, model: Path) -> dict[str, str]:
    """The prompt is the question alone, and no deadline cuts a slow machine short."""
    return {
        "MODEL__DIR": str(model),
        "WORKER__SLOTS": str(clients),
        "WORKER__SYSTEM_PROMPT": "",
        "WORKER__GROUNDING_ENTRIES": "0",
        "WORKER__HISTORY_TURNS": "0",
        "PROMISE__FIRST_TOKEN_MS": "60000",
        "PROMISE__DEADLINE_MS": "60000",
    }


async def _bare(texts: Sequence[str], env: dict[str, str], batch: int, new_tokens: int, console: Console) -> BareRun:
    console.print("the engine alone")
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.encode(texts[: batch * min(_BARE_BATCHES, len(texts) // batch)]))
        file.flush()
        sizes = ["--batch", str(batch), "--new-tokens", str(new_tokens)]
        named = {PREFIX + name: value for name, value in env.items()}
        said = await run_program(
            "tests.bench.bare_engine", "--prompts", file.name, *sizes, env=named, timeout_s=_BARE_S
        )
    return msgspec.json.decode(said, type=BareRun)


async def _round(
    settings: Settings,
    env: dict[str, str],
    texts: Sequence[str],
    clients: int,
    max_output_tokens: int,
    expected: Sequence[str],
    console: Console,
) -> StreamRound:
    with System(settings=settings, broker="embedded", env=env) as system:
        await system.start_services()
        _, url = await system.start_gateway()
        await system.start_worker()
        load = Load(url=url, max_inflight=1)
        try:
            limits = await load.open(len(texts))  # a connection each: a conversation each
            questions = [
                Question(text=text, max_output_tokens=max_output_tokens, deadline_ms=limits.deadline_ms)
                for text in texts
            ]
            with progress_bar(console, "answers", len(questions)) as progress:
                await load.closed_loop(questions, clients, progress)
        finally:
            load.close()
        await asyncio.sleep(0)
    return measure(load.outcomes, warmup=2 * clients, new_tokens=max_output_tokens, expected=expected)


def measure(outcomes: Sequence[Outcome], *, warmup: int, new_tokens: int, expected: Sequence[str]) -> StreamRound:
    """A round's outcomes but for the first `warmup`; `expected` are the texts of the engine alone."""
    measured = outcomes[warmup:]
    report = summarise(measured)
    pairs = list(zip(outcomes, expected, strict=False))
    return StreamRound(
        tok_s=round(steady_tokens_per_s(outcomes, warmup), 2),
        wall_tok_s=report.output_tok_s,
        report=report,
        failed=sum(not outcome.by_model or outcome.output_tokens != new_tokens for outcome in measured),
        same_text=sum(outcome.text == text for outcome, text in pairs),
        compared=len(pairs),
    )


def _result(measured: Sequence[StreamRound], bare: Sequence[BareRun]) -> dict[str, object]:
    """Each round's ratio is to the mean of the bare runs just before and after it; the median of them counts."""
    ratios = [
        one.tok_s / ((before.tok_s + after.tok_s) / 2)
        for one, before, after in zip(measured, bare, bare[1:], strict=False)
    ]
    return {
        "ratio": round(median(ratios), 4),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "output_tok_s": round(median([one.tok_s for one in measured]), 2),
        "bare_tok_s": round(median([run.tok_s for run in bare]), 2),
        "ttft_ms": {
            "p50": round(median([one.report.ttft_ms.p50 or 0.0 for one in measured]), 2),
            "p99": round(median([one.report.ttft_ms.p99 or 0.0 for one in measured]), 2),
        },
        "e2e_ms": {"p50": round(median([one.report.e2e_ms.p50 or 0.0 for one in measured]), 2)},
        "prompt_tokens": median([float(tokens) for run in bare for tokens in run.prompt_tokens]),
        "llama_server_elsewhere": LLAMA_SERVER,
    }


def _print(measured: Sequence[StreamRound], bare: Sequence[BareRun], clients: int) -> None:
    result = msgspec.convert(_result(measured, bare), type=_Shown)
    same, compared = sum(one.same_text for one in measured), sum(one.compared for one in measured)
    failed = sum(one.failed for one in measured)
    header = ("", "tok/s", "TTFT p50 ms", "TTFT p99 ms", "end to end p50 ms")
    ttft, e2e = result.ttft_ms, result.e2e_ms
    rows = [
        (f"whole system, {clients} clients", result.output_tok_s, ttft["p50"], ttft["p99"], e2e["p50"]),
        (f"engine alone, {clients} rows kept full", result.bare_tok_s, None, None, None),
        (
            "llama-server Q4_0 (measured earlier, elsewhere)",
            LLAMA_SERVER["tok_s"],
            LLAMA_SERVER["ttft_p50_ms"],
            None,
            None,
        ),
    ]
    print(markdown(header, rows))
    print(f"of the engine alone: {share_of_bound(result.ratio, failed)}, rounds {result.ratios}")
    print(f"prompts of {result.prompt_tokens:.0f} tokens; not of full length by the model: {failed}")
    print(f"same text from both: {same} of {compared}")


def share_of_bound(ratio: float, failed: int) -> str:
    """The ratio beside its target. Nothing is faster than what bounds it: above 1 it says nothing of the system."""
    if ratio > 1:
        return f"{ratio:.3f} (above 1: the machine was not as quiet in both; measure again)"
    return f"{ratio:.3f} ({verdict(ratio, RATIO_TARGET, at_least=True, failed=failed)})"


class _Shown(Struct, frozen=True):
    """What is printed of the result."""

    ratio: float
    ratios: list[float]
    output_tok_s: float
    bare_tok_s: float
    ttft_ms: dict[str, float]
    e2e_ms: dict[str, float]
    prompt_tokens: float
