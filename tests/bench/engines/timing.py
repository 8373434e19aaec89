"""What a process is asked about its engine and says of it, and the figures of a cell. Pure."""

from typing import Final

from msgspec import Struct

Figures = dict[str, float | None]

MIXED_ROWS: Final = 8
MIXED_TOKENS: Final = 128
_SLOT_MULTIPLE: Final = 64


class Sizes(Struct, frozen=True, kw_only=True):
    """`new_tokens` are decoded in each of `batches` rows, over each of `contexts`; prompts of each of `prefills` tokens
    are added over each of `pasts`."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    new_tokens: int
    prefills: tuple[int, ...]
    pasts: tuple[int, ...]

    @property
    def slots(self) -> int:
        """One more than rows: for the prompt of a mixed step."""
        return max(self.batches) + 1

    @property
    def length(self) -> int:
        """Return the tokens that a slot must hold."""
        longest = max(max(self.contexts) + self.new_tokens, max(self.prefills) + max(self.pasts))
        return -(-longest // _SLOT_MULTIPLE) * _SLOT_MULTIPLE


class Decoded(Struct, frozen=True, kw_only=True):
    """`rows` sequences of `context` tokens, `steps` more of each.

    `runtime_s` is the part of `seconds` that was spent in the runtime's own calls; `rss_mib` is the most that was
    resident so far in the process, which measures its batches in ascending order.
    """

    rows: int
    context: int
    steps: int
    seconds: float
    rss_mib: float
    runtime_s: float | None = None
    device_mib: float | None = None

    def figures(self) -> Figures:
        """Tokens a second of all rows; `python` is the part of a step outside the runtime's own calls."""
        figures: Figures = {
            "decode_tok_s": round(self.rows * self.steps / self.seconds, 2),
            "rss_mib": round(self.rss_mib, 1),
        }
        if self.runtime_s is not None:
            figures["python"] = round(1 - self.runtime_s / self.seconds, 4)
        if self.device_mib is not None:
            figures["device_mib"] = round(self.device_mib, 1)
        return {f"{name} {self.rows} x {self.context}": value for name, value in figures.items()}


class Prefilled(Struct, frozen=True, kw_only=True):
    """One prompt's `tokens`, added to a slot that holds `past`."""

    tokens: int
    past: int
    seconds: float


class Mixed(Struct, frozen=True, kw_only=True):
    """A step of `rows` that decode and of a prompt's `tokens`: in one call, and in two, one after the other."""

    rows: int
    context: int
    tokens: int
    seconds: float
    apart_s: float


class Engine(Struct, frozen=True, kw_only=True):
    """`device` is `cpu` or the GPU's name; `runtime` names the library and its version; `load_s` is how long it took to
    load the prepared folder."""

    engine: str
    model: str
    precision: str
    device: str
    runtime: str
    decoded: list[Decoded]
    prefilled: list[Prefilled]
    mixed: list[Mixed] = []
    load_s: float | None = None

    def figures(self) -> Figures:
        figures = {name: value for one in self.decoded for name, value in one.figures().items()}
        for prompt in self.prefilled:
            figures[f"prefill_tok_s {prompt.tokens} over {prompt.past}"] = round(prompt.tokens / prompt.seconds, 2)
        for step in self.mixed:
            name = f"mixed_of_apart {step.rows} x {step.context} + {step.tokens}"
            figures[name] = round(step.seconds / step.apart_s, 4)
        return figures if self.load_s is None else {**figures, "load_s": round(self.load_s, 3)}
