"""What is computed from the cells of `replyline bench kv`. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ops.measure.quantiles import median
from shared.model.folder import Architecture
from workers.engine.kv_layout import KvLayout
from workers.kv.values import Codec, value_bytes

FAKE_LAYOUT = KvLayout(layers=1, parts=1, heads=1, dim=1, dtype="uint64")


def ratio(value: float | None, of: float | None) -> float | None:
    """None where one of them was not measured, or there is nothing to divide by."""
    return value / of if value is not None and of else None


def median_ratio(pairs: Iterable[tuple[float, float]]) -> float | None:
    """The median over the rounds of each round's own quotient; rounds without a divisor do not count."""
    quotients = [value / of for value, of in pairs if of]
    return median(quotients) if quotients else None


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what was measured."""
    measured = [value for value in values if value is not None]
    return median(measured) if measured else None


def worst(values: Iterable[float | None]) -> float | None:
    """The largest; None where one was not measured."""
    given = list(values)
    measured = [value for value in given if value is not None]
    return max(measured) if measured and len(measured) == len(given) else None


def rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def layout_of(architecture: Architecture) -> KvLayout:
    """That of the onnx engine: keys and values in fp32."""
    return KvLayout(
        layers=architecture.num_layers,
        parts=2,
        heads=architecture.num_kv_heads,
        dim=architecture.head_dim,
        dtype="float32",
    )


def bytes_per_token(layout: KvLayout, codec: Codec) -> int:
    """What a token takes in a value, without the value's header."""
    return value_bytes(layout, codec, 2) - value_bytes(layout, codec, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One turn. `new_tokens`: those of the prompt that the worker computed, and those of the answer. `session_tokens`:
    all of the conversation so far, the answer included. `num_bytes`: of the values written to Redis."""

    turn: int
    new_tokens: int
    session_tokens: int
    num_bytes: float


def write_ratio(turns: Sequence[Written], token_bytes: int) -> float | None:
    """Bytes written by those of the new tokens; None where nothing was written."""
    written = sum(turn.num_bytes for turn in turns)
    return ratio(written or None, sum(turn.new_tokens for turn in turns) * token_bytes)


def write_saved(turns: Sequence[Written], token_bytes: int) -> float | None:
    """The share of the bytes that rewriting the whole conversation at each of the turns would take; None where nothing
    was written."""
    written = sum(turn.num_bytes for turn in turns)
    share = ratio(written or None, sum(turn.session_tokens for turn in turns) * token_bytes)
    return None if share is None else 1 - share


def answer_room(*, target: int, used: int, to_be_asked: int, answers: int, least: int, most: int) -> int:
    """How long the next of `answers` may be, so that the last question's context comes to `target` tokens.

    `used` tokens are there, `to_be_asked` come with the questions until then. The result is within `least` and `most`.
    """
    return min(most, max(least, (target - used - to_be_asked) // answers))
