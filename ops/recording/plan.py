"""A recording as requests that can be asked again. Pure."""

from collections.abc import Callable

from ops.load.planned import Planned
from ops.texts.prompts import question
from ops.traces.entries import BYTES, Asked
from ops.traces.recording import Recording
from shared.errors import SettingsError
from shared.wire.messages import ResponseCreate


def planned(recording: Recording, *, speed: float) -> list[Planned]:
    """The requests with their spacing divided by `speed`; their deadlines are as they were. Where a text was not
    consented to, another one of its length stands for it. Raises `SettingsError` for none."""
    if not recording.asked:
        raise SettingsError(f"{recording.name}: holds no request; record while somebody asks")
    of_length = text_maker(recording.header.tokenizer)
    ordered = sorted(enumerate(recording.asked), key=lambda pair: (pair[1].at_ms, pair[0]))
    start_ms = ordered[0][1].at_ms
    return [
        Planned(
            at_s=(one.at_ms - start_ms) / 1_000 / speed,
            session=one.session,
            bucket=one.bucket,
            deadline_ms=one.deadline_ms,
            request=_request(number, one, of_length),
        )
        for number, one in ordered
    ]


def text_maker(tokenizer: str) -> Callable[[int, int], str]:
    """(tokens, seed) → a text of so many tokens of that tokenizer; of one with words, about so many."""
    if tokenizer != BYTES:
        return lambda tokens, seed: question(max(1, tokens), seed)

    # No word is shorter than three letters, and a space stands between any two.
    return lambda tokens, seed: question(1 + tokens // 4, seed)[: max(1, tokens)]


def _request(number: int, one: Asked, of_length: Callable[[int, int], str]) -> ResponseCreate:
    return ResponseCreate(
        event_id=f"replay-{number}",
        input=one.text if one.text is not None else of_length(one.input_tokens, number),
        max_output_tokens=one.max_output_tokens,
        temperature=one.temperature,
        top_p=one.top_p,
        stop=one.stop,
        deadline_ms=one.deadline_ms,
        first_token_ms=one.first_token_ms,
    )
