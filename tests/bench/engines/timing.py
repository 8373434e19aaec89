"""What a process says of its engine, and the figures of a cell. Pure."""

from msgspec import Struct

Figures = dict[str, float | None]


class Sizes(Struct, frozen=True, kw_only=True):
    """Tokens of each prompt, and new ones of each answer."""

    prompt_tokens: int
    new_tokens: int


class Timing(Struct, frozen=True, kw_only=True):
    """One batch: prompts and new tokens of all its rows; the first new token is prefill's.

    `runtime_s` is the part of `decode_s` that was spent in the runtime's own calls; `rss_mib` is the most that was
    resident so far in the process, which measures its batches in ascending order.
    """

    batch: int
    prefill_s: float
    decode_s: float
    decode_steps: int
    rss_mib: float
    runtime_s: float | None = None
    device_mib: float | None = None

    def figures(self, sizes: Sizes) -> Figures:
        """Tokens a second of all rows; `python` is the part of a step outside the runtime's own calls."""
        figures: Figures = {
            "decode_tok_s": round(self.batch * self.decode_steps / self.decode_s, 2),
            "prefill_tok_s": round(self.batch * sizes.prompt_tokens / self.prefill_s, 2),
            "rss_mib": round(self.rss_mib, 1),
        }
        if self.runtime_s is not None:
            figures["python"] = round(1 - self.runtime_s / self.decode_s, 4)
        if self.device_mib is not None:
            figures["device_mib"] = round(self.device_mib, 1)
        return {f"{name} @{self.batch}": value for name, value in figures.items()}


class Engine(Struct, frozen=True, kw_only=True):
    """`device` is `cpu` or the GPU's name; `runtime` names the library and its version."""

    engine: str
    model: str
    precision: str
    device: str
    runtime: str
    timings: list[Timing]

    def figures(self, sizes: Sizes) -> Figures:
        return {name: value for timing in self.timings for name, value in timing.figures(sizes).items()}
