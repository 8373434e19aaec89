"""`replyline shadow replay`: ask what was recorded of two models, one after the other, and compare their answers.

Each model gets a separate system in memory. A conversation's later questions are asked with the first model's answers,
so that a difference is of one answer alone. A question without the consent that keeps its text is left out.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from ops.measure.runner import progress_bar
from ops.operate.recording.file import RecordedRequest, read_recording
from ops.stack.system import System
from shared.client.session import AsyncReplyline
from shared.errors import SettingsError
from shared.model.tokenizer import open_tokenizer
from shared.settings import Settings
from shared.wire.fields import MAX_TURNS
from shared.wire.lanes import SHADOW
from shared.wire.messages import ResponseCreate, Said, Turns
from shared.wire.outcome import CLAIM_NOTHING, Response
from shared.wire.reports import Observation
from shared.wire.session_key import SessionKey
from shared.wire.shadow import LiveAnswer
from workers.answer.comparison import Compared

_DEADLINE_MS: Final = 600_000
"""No answer is late: its words are compared, not its time."""


async def replay(path: Path, model: Path, against: Path, settings: Settings, console: Console) -> list[Observation]:
    """Compare the answers of `model` and `against`. Raises `SettingsError`, `ServiceError`, `ConnectFailed`."""
    recording = read_recording(path)
    asked = [one for _, one in recording.in_order() if one.text]
    if not asked:
        raise SettingsError(f"{path}: holds no text; record customers who consent to that")
    console.print(f"{len(asked):,} of {len(recording.asked):,} questions have their text", highlight=False)
    live = await _answers(asked, None, against, settings, console)
    shadows = await _answers(asked, live, model, settings, console)
    encode = open_tokenizer(settings.worker.engine, model).encode_text
    return [observed(*three, encode) for three in zip(asked, live, shadows, strict=True)]


async def _answers(
    asked: Sequence[RecordedRequest], live: Sequence[Response] | None, model: Path, settings: Settings, console: Console
) -> list[Response]:
    """Return a model's answers, asked for one by one. Without `live` answers its own are the conversations' turns."""
    answers: list[Response] = []
    env = {
        "MODEL__DIR": str(model),
        "ANSWERS__POLICY": settings.answers.policy,
        "ANSWERS__GUARD": str(settings.answers.guard),
        "PROMISE__MAX_DEADLINE_MS": str(_DEADLINE_MS),
    }
    with System(settings=settings, broker="embedded", env=env) as system:
        await system.start_services()
        _, url = await system.start_gateway()
        await system.start_worker()
        with progress_bar(console, model.name, len(asked)) as progress:
            for place, one in enumerate(asked):
                async with AsyncReplyline(url, session_id=f"replay-{place}") as chat:
                    question = question_of(one, place, turns_before(asked, answers if live is None else live, place))
                    answers.append(await chat.answer(question))
                progress(place + 1)
    return answers


def turns_before(asked: Sequence[RecordedRequest], answers: Sequence[Response], place: int) -> Turns:
    """Return what was said in a question's conversation before it."""
    of = asked[place]
    earlier = zip(asked[:place], answers, strict=False)
    said = [Said(user=one.text or "", assistant=answer.output_text) for one, answer in earlier if _same(one, of)]
    return tuple(said[-MAX_TURNS:])


def _same(one: RecordedRequest, other: RecordedRequest) -> bool:
    return (one.tenant, one.session) == (other.tenant, other.session)


def question_of(one: RecordedRequest, place: int, turns: Turns) -> ResponseCreate:
    """Return a question as both models get it."""
    return ResponseCreate(
        event_id=f"replay-{place}",
        input=one.text or "",
        max_output_tokens=one.max_output_tokens,
        temperature=one.temperature,
        top_p=one.top_p,
        seed=place,
        stop=one.stop,
        deadline_ms=_DEADLINE_MS,
        first_token_ms=_DEADLINE_MS,
        turns=turns,
    )


def observed(
    one: RecordedRequest, live: Response, answer: Response, encode: Callable[[str], Sequence[int]]
) -> Observation:
    """Return how an answer compares with the live one; without a comparison if either has no text."""
    by = Compared.of(encode, one.text or "", answer.grounding)
    comparison = by.compare(LiveAnswer.from_outcome(live.id, live), answer, total_ms=answer.timings.total_ms)
    return Observation(
        response_id=answer.id,
        conversation=SessionKey(one.tenant, one.session).digest,
        lane=SHADOW,
        revision=answer.revision or "",
        epoch=0,
        unix_ms=round(one.at_ms),
        bucket=one.bucket,
        failed=answer.status == "failed",
        unsure=answer.source in CLAIM_NOTHING,
        ttft_ms=answer.timings.ttft_ms,
        compared=comparison if live.output_text and answer.output_text else None,
    )
