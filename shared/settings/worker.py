"""The settings of the worker: its model and engine, its slots, its prompts, and the KV that it keeps."""

from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator

from shared.settings.credential_files import PasswordFile
from shared.settings.group import Group, check_http_url
from shared.wire.lanes import CHAMPION, Lane

MAX_SLOTS: Final = 512
_CPU_SLOTS: Final = 8

# Engines that compute a CPU's folder: they need no more than the demo has.
CPU_ENGINES: Final = ("native", "onnx")

NativeKernel = Literal["auto", "avx512-bf16", "avx512-vnni", "avx-vnni", "avx2", "neon", "portable"]
WindowKind = Literal["off", "adaptive"]

SYSTEM_PROMPT = (
    "You are the assistant of the shop Harbor & Pine. Answer the customer's question in one to three short sentences, "
    "in the customer's language, using only the help entries below. If they do not answer it, say so and offer to "
    "connect a person."
)


class KvSettings(Group):
    """The KV that the model has computed of a conversation, kept for its next turn: in host memory and in Redis."""

    enabled: bool = Field(
        True, description="keep the KV cache of a conversation for its next turn; false: every prompt is computed whole"
    )
    precision: Literal["fp16", "exact", "int8"] = Field(
        "fp16", description="precision of the KV that is kept (exact: the engine's own)"
    )
    ttl_s: int = Field(3_600, ge=1, le=2_592_000, description="Redis drops KV so many seconds after its last use")
    host_mib: int = Field(256, ge=0, le=1_048_576, description="host memory for KV, in MiB (0: none, Redis only)")
    disk_mib: int = Field(
        0,
        ge=0,
        le=16_777_216,
        description="disk for KV that host memory has no room for, in MiB, emptied at the worker's end (0: none)",
    )
    disk_dir: Path = Field(Path(".models/kv"), description="folder for that; only its owner may read what is in it")
    timeout_ms: int = Field(
        20, ge=1, le=10_000, description="longest that one read or write of KV in Redis takes, in ms"
    )


class ModelSettings(Group):
    """The prepared model folder (`replyline model prepare`)."""

    dir: Path = Field(
        Path(".models/smollm2-135m-shop-int8"),
        description="folder of the prepared model, with its manifest.json (`replyline model prepare`)",
    )
    versions_dir: Path = Field(
        Path(".models/versions"),
        description="store of the registry's versions, a folder each (`replyline versions add`); every worker's "
        "machine has it",
    )
    trusted_keys: Path | None = Field(
        None,
        description="folder of public keys (*.pem): only versions signed by one of them are loaded "
        "(empty: signatures are not asked for)",
    )
    questions: Path | None = Field(
        None,
        description="question set that a version has to pass before it gets traffic, JSON Lines (empty: the demo "
        "shop's)",
    )
    least_right: float = Field(
        0.5, ge=0, le=1, description="least share of right answers, of all and in each language, with which one passes"
    )


class WorkerSettings(Group):
    """Inference: one engine, one scheduler, one consumer."""

    engine: Literal["native", "onnx", "tensorrt", "tensorrt-rtx", "torch", "upstream", "fake"] = Field(
        "native",
        description="native: on the CPU, by onnx where it cannot; onnx: on the CPU; tensorrt, tensorrt-rtx: on a GPU; "
        "torch: on either; upstream: other servers; fake: scripted, for tests",
    )
    native_kernel: NativeKernel = Field(
        "auto", description="instructions that engine=native computes by (auto: the fastest that the CPU has)"
    )
    native_dir: Path | None = Field(
        None, description="folder of the library of engine=native (empty: native in `worker.cache_dir`)"
    )
    fallback_engine: Literal["", "native", "onnx"] = Field(
        "",
        description="engine to take where the GPU or its libraries cannot be used (empty: the worker stops "
        "with status 2)",
    )
    cache_dir: Path = Field(
        Path(".models"), description="folder of what is made for this machine: TensorRT's plans, the costs of a step"
    )
    torch_device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="where engine=torch computes (auto: on a GPU where there is one)"
    )
    metrics_host: str = Field("127.0.0.1", description="address of /metrics, /health and /ready (:: is every one)")
    metrics_port: int = Field(
        8081, ge=0, le=65_535, description="port of /metrics, /health, /ready and /drain (0: a free one)"
    )
    instance_id: str = Field(
        "",
        description="group.instance.id of a static member: back within the session timeout after a crash it keeps its "
        "partitions (empty: dynamic)",
    )
    buckets: tuple[Literal["short", "medium", "long"], ...] = Field(
        ("short", "medium", "long"),
        min_length=1,
        description="request topics that this worker serves: short, medium, long; a worker of short alone "
        "keeps long questions out of their way",
    )
    lane: Lane = Field(
        CHAMPION,
        description="part that this worker plays, with its own topics and group: champion, canary, control, "
        "light, cpu, shadow",
    )
    slots: int = Field(
        8,
        ge=0,
        le=MAX_SLOTS,
        description="sequences decoded together (0: as many as the GPU's memory has room for; on a CPU 8)",
    )
    gpu_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the GPU's memory that this worker plans with: 0.5 where two workers share a GPU",
    )
    long_slots_share: float = Field(
        0.0,
        ge=0,
        le=0.9,
        description="share of the slots that only long requests get, so that a crowd of short ones does not keep them "
        "out (0: none; else one slot at least)",
    )
    max_length: int = Field(2_048, ge=64, le=1_048_576, description="tokens of prompt and answer that a slot holds")
    threads: int = Field(0, ge=0, le=256, description="threads of the engine (0: one a core that it may use)")
    window: WindowKind = Field(
        "off",
        description="adaptive: the first that waits is held for 10 ms while others run, else for 50 ms, so "
        "that more share its prefill; off: never",
    )
    prefill_chunk_tokens: int = Field(
        256,
        ge=8,
        le=65_536,
        description="most prompt tokens computed in one step; fewer make running answers smoother, and first "
        "tokens later",
    )
    max_waiting: int = Field(
        64, ge=1, le=100_000, description="requests read ahead; at that many the partitions are paused"
    )
    reply_interval_ms: float = Field(
        50.0, ge=0, le=1_000, description="ms between an answer's deltas; its first and its end are sent immediately"
    )
    system_prompt: str = Field(SYSTEM_PROMPT, description="text that begins every prompt")
    grounding_entries: int = Field(2, ge=0, le=10, description="FAQ entries put into a prompt")
    history_turns: int = Field(5, ge=0, le=50, description="most earlier turns put into a prompt")
    fake_prefill_ms_per_token: float = Field(0.0, ge=0, description="engine=fake: ms for a prompt token")
    fake_decode_ms_per_step: float = Field(0.0, ge=0, description="engine=fake: ms for a decode step")
    fake_mixes: bool = Field(False, description="engine=fake: compute decode rows and prompts in one call")
    step_limit_s: float = Field(
        0.0,
        ge=0,
        le=3_600,
        description="an engine step that takes more seconds hangs: the worker leaves its group and ends with "
        "status 1 (0: twice promise.deadline_ms, 5 s at least)",
    )
    previous_s: float = Field(
        30.0,
        ge=0,
        le=86_400,
        description="seconds that a model version stays loaded after another serves, so that a return to it is "
        "instant (0: until its own answers have ended); on CPU engines the previous champion stays until another "
        "version needs its memory",
    )
    drain_s: float = Field(
        10.0,
        ge=0,
        le=300,
        description="seconds that a worker which stops, and has left its group, finishes answers in flight",
    )

    @property
    def slots_without_gpu(self) -> int:
        """Return the number of slots where no GPU's memory says it."""
        return self.slots or _CPU_SLOTS

    @property
    def native_library_dir(self) -> Path:
        return self.native_dir or self.cache_dir / "native"

    @property
    def plans_dir(self) -> Path:
        return self.cache_dir / "plans"

    @property
    def costs_dir(self) -> Path:
        return self.cache_dir / "costs"


class UpstreamSettings(Group):
    """The OpenAI-compatible servers that compute with `worker.engine=upstream`. Each gets `worker.slots` requests at a
    time, of `worker.max_length` tokens at most."""

    url: tuple[str, ...] = Field((), description="base addresses, comma-separated: http://127.0.0.1:8000/v1")
    model: str = Field("", description="the model's name there (empty: the first that each lists)")
    key_file: PasswordFile | None = Field(None, description="file with the API key; the line's end does not belong")
    priority: bool = Field(
        False, description="send deadlines as `priority`, for vLLM with --scheduling-policy priority: earliest first"
    )
    silence_ms: int = Field(10_000, ge=100, le=600_000, description="a stream from which so long nothing comes ends")

    @field_validator("url")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            check_http_url(url, example="http://127.0.0.1:8000/v1", key_file="upstream.key_file")
        if len(set(urls)) < len(urls):
            raise ValueError("an address stands there twice; leave one out")
        return tuple([url.rstrip("/") for url in urls])
