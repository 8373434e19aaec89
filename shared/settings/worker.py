"""The settings of the worker: its model and engine, its slots, its prompts, and the KV that it keeps."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from shared.settings.group import Group

WindowKind = Literal["off", "adaptive"]

SYSTEM_PROMPT = (
    "You are the assistant of the shop Harbor & Pine. Answer the customer's question in one to three short sentences, "
    "in the customer's language, using only the help entries below. If they do not answer it, say so and offer to "
    "connect a person."
)


class KvSettings(Group):
    """The KV that the model has computed of a conversation, kept for its next turn: in host memory and in Redis."""

    enabled: bool = Field(True, description="keep it; without it every prompt is computed whole")
    precision: Literal["fp16", "exact", "int8"] = Field("fp16", description="of what is kept (exact: the engine's)")
    ttl_s: int = Field(3_600, ge=1, le=2_592_000, description="Redis drops it so long after its last use")
    host_mib: int = Field(256, ge=0, le=1_048_576, description="host memory for it, at most (0: none)")
    timeout_ms: int = Field(20, ge=1, le=10_000, description="one read from Redis or write to it takes no longer")


class ModelSettings(Group):
    """The prepared model folder (`replyline model prepare`)."""

    dir: Path = Field(Path(".models/smollm2-135m-shop-int8"), description="folder with manifest.json")


class WorkerSettings(Group):
    """Inference: one engine, one scheduler, one consumer."""

    engine: Literal["onnx", "tensorrt", "tensorrt-rtx", "torch", "fake"] = Field(
        "onnx",
        description="onnx: the model on the CPU; tensorrt, tensorrt-rtx: on a GPU; torch: on either; "
        "fake: scripted, for tests",
    )
    fallback_engine: Literal["", "onnx"] = Field(
        "", description="taken where the GPU or its libraries cannot be used (empty: the worker stops, status 2)"
    )
    cache_dir: Path = Field(
        Path(".models"), description="what is made for this machine is kept here: TensorRT's plans, a step's costs"
    )
    torch_device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="engine=torch: where it computes (auto: on a GPU where there is one)"
    )
    metrics_host: str = Field("127.0.0.1", description="address of /metrics, /health and /ready")
    metrics_port: int = Field(8081, ge=0, le=65_535, description="0 picks a free port")
    instance_id: str = Field("", description="static membership (group.instance.id); empty: dynamic")
    buckets: tuple[Literal["short", "medium", "long"], ...] = Field(
        ("short", "medium", "long"), min_length=1, description="which request topics this worker serves"
    )
    slots: int = Field(8, ge=1, le=512, description="sequences decoded together")
    max_length: int = Field(2_048, ge=64, le=1_048_576, description="tokens of prompt and answer a slot holds")
    threads: int = Field(0, ge=0, le=256, description="engine threads (0: one a core)")
    window: WindowKind = Field(
        "off",
        description="adaptive: hold the first of the waiting for 10 ms while others run, else 50 ms, so that others "
        "share its prefill call",
    )
    prefill_chunk_tokens: int = Field(256, ge=8, le=65_536, description="prompt tokens computed in one step, at most")
    max_waiting: int = Field(64, ge=1, le=100_000, description="requests read ahead; then partitions are paused")
    reply_interval_ms: float = Field(
        50.0, ge=0, le=1_000, description="deltas go out together so often; an answer's first and its end at once"
    )
    system_prompt: str = Field(SYSTEM_PROMPT, description="stands first in every prompt")
    grounding_entries: int = Field(2, ge=0, le=10, description="FAQ entries put into the prompt")
    history_turns: int = Field(5, ge=0, le=50, description="earlier turns put into the prompt, at most")
    fake_prefill_ms_per_token: float = Field(0.0, ge=0, description="engine=fake: latency")
    fake_decode_ms_per_step: float = Field(0.0, ge=0, description="engine=fake: latency")
    step_limit_s: float = Field(
        0.0,
        ge=0,
        le=3_600,
        description="an engine step that takes longer hangs: the worker leaves and ends, status 1 (0: twice the "
        "promise's deadline, 5 s at least)",
    )
    drain_s: float = Field(10.0, ge=0, le=300, description="how long shutdown waits for sequences in flight")

    @property
    def plans_dir(self) -> Path:
        return self.cache_dir / "plans"

    @property
    def costs_dir(self) -> Path:
        return self.cache_dir / "costs"
