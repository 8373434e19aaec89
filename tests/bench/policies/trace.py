"""A trace as a real worker can be asked it: a text for each request, and the lengths that these texts have. Pure.

Answers end where they are cut: `max_output_tokens` of a request is its answer's length. So the same requests, token
for token, can be simulated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from ops.texts.prompts import fit, words
from ops.traces.trace import Trace
from shared.wire.topics import BucketEdges

# A model that is asked for much does not stop early.
_OPENING: Final = "Write a long guide to these words:"
_SOMETHING: Final = "order"

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Script:
    """`texts[i]` is what request `i` of the trace asks."""

    trace: Trace
    texts: tuple[str, ...]


def script_of(trace: Trace, *, count: Count, count_prompt: Count, edges: BucketEdges) -> Script:
    """The trace with texts. `count` gives the tokens of a text, `count_prompt` those of the prompt around it.

    The bucket is that of the text's length, as everywhere: the longest short requests of a trace may be medium ones.
    """
    around = count_prompt(_SOMETHING) - count(_SOMETHING)
    texts = tuple(_text(request.prompt_tokens - around, index, count) for index, request in enumerate(trace.requests))
    requests = tuple(
        msgspec.structs.replace(
            request,
            bucket=edges.bucket_of(count(text)),
            prompt_tokens=count_prompt(text),
            max_output_tokens=request.output_tokens,
        )
        for request, text in zip(trace.requests, texts, strict=True)
    )
    return Script(msgspec.structs.replace(trace, requests=requests), texts)


def _text(num_tokens: int, seed: int, count: Count) -> str:
    """As many tokens as fit; one word at least."""
    opening = _OPENING if count(_OPENING) < num_tokens else ""
    return fit(opening, max(1, num_tokens), seed, count) or words(1, seed)[0]
