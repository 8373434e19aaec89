"""How near an engine is to what its device could do at best: pure.

A step takes at least as long as reading what it reads takes at the device's bandwidth, and at least as long as its
multiplications take at the device's best rate: the roofline (Williams, Waterman, Patterson, 2009,
https://doi.org/10.1145/1498765.1498785). A share is that least time over the measured one.
"""

from msgspec import Struct

from shared.model.folder import Architecture


class Work(Struct, frozen=True, kw_only=True):
    """What a decoder reads and computes.

    `weight_bytes` are read by every step; `body` and `head` are the numbers of weights that every token, and every
    row's last one, is multiplied by; `attention` are multiplications and additions of a token with one token before it.
    """

    weight_bytes: float
    kv_bytes_per_token: int
    body: int
    head: int
    attention: int


class Limits(Struct, frozen=True, kw_only=True):
    """What a device can do: bytes read a second, and by precision the multiplications and additions a second.

    `source` says how that is known. A precision that is missing was not measured.
    """

    source: str
    read_gb_s: float
    gflop_s: dict[str, float]


def work_of(architecture: Architecture, *, stored_bytes: int, kv_itemsize: int) -> Work:
    """Of a model whose matrices take `stored_bytes`; of an untied embedding a step reads a few rows, not the table."""
    a = architecture
    heads = (a.num_heads + 2 * a.num_kv_heads) * a.head_dim
    layer = a.hidden_size * (heads + a.num_heads * a.head_dim + 3 * a.intermediate_size)
    body, head = a.num_layers * layer, a.vocab_size * a.hidden_size
    stored = body + head * (1 if a.tied_embedding else 2)
    return Work(
        weight_bytes=stored_bytes * (body + head) / stored,
        kv_bytes_per_token=2 * a.num_layers * a.num_kv_heads * a.head_dim * kv_itemsize,
        body=body,
        head=head,
        attention=4 * a.num_layers * a.num_heads * a.head_dim,
    )


def decode_bound_s(work: Work, limits: Limits, precision: str, *, rows: int, past: float) -> float:
    """The least time of a step of `rows` that hold `past` tokens each. Bytes alone where the rate is not known."""
    num_bytes = work.weight_bytes + rows * past * work.kv_bytes_per_token
    flop = rows * (2 * (work.body + work.head) + work.attention * past)
    return _bound_s(limits, precision, num_bytes, flop)


def prefill_bound_s(work: Work, limits: Limits, precision: str, *, rows: int, tokens: int) -> float | None:
    """The least time of `rows` prompts of `tokens` each, by the rate of computing; None where it is not known."""
    if computing_rate(limits, precision) is None:
        return None
    flop = rows * (tokens * (2 * work.body + work.attention * tokens / 2) + 2 * work.head)
    return _bound_s(limits, precision, work.weight_bytes, flop)


def computing_rate(limits: Limits, precision: str) -> float | None:
    """Multiplications and additions a second, in 10⁹, of the kernels that this precision runs on.

    Weights of 8 bits and fewer are multiplied by activations of 8 bits on a CPU.
    """
    return limits.gflop_s.get(precision if precision in {"fp32", "fp16", "bf16"} else "int8")


def _bound_s(limits: Limits, precision: str, num_bytes: float, flop: float) -> float:
    rate = computing_rate(limits, precision)
    reading_s = num_bytes / (limits.read_gb_s * 1e9)
    return reading_s if rate is None else max(reading_s, flop / (rate * 1e9))
