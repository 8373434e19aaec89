"""Settings of the worker: model, engine, slots, prompts and KV cache."""

from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator

from shared.hosts import WEB, check_url
from shared.settings.credential_files import PasswordFile
from shared.settings.group import SettingsGroup
from shared.wire.lanes import CHAMPION, Lane

MAX_SLOTS: Final = 512
_CPU_SLOTS: Final = 8

# Engines that read a model folder prepared for CPUs. They need no packages beyond the demo's.
CPU_ENGINES: Final = ("native", "onnx")

NativeKernel = Literal["auto", "avx512-bf16", "avx512-vnni", "avx-vnni", "avx2", "neon", "portable"]
WindowKind = Literal["off", "adaptive"]
SpeculationKind = Literal["off", "own", "tenant"]

SYSTEM_PROMPT = (
    "You are the assistant of the shop Harbor & Pine. Answer the customer's question in one to three short sentences, "
    "in the customer's language, using only the help entries below. If they do not answer it, say so and offer to "
    "connect a person."
)


class KvSettings(SettingsGroup):
    """The KV cache of conversations, kept for their next turns in host memory, on disk and in Redis."""

    enabled: bool = Field(
        True,
        description=(
            "true: keep a conversation's KV cache for its next turn; false: compute every prompt from the beginning"
        ),
    )
    precision: Literal["fp16", "exact", "int8"] = Field(
        "fp16", description="precision in which KV is stored (exact: the engine's own)"
    )
    ttl_s: int = Field(3_600, ge=1, le=2_592_000, description="seconds after its last use at which Redis drops KV")
    host_mib: int = Field(256, ge=0, le=1_048_576, description="host memory for KV, in MiB (0: none, Redis only)")
    disk_mib: int = Field(
        0,
        ge=0,
        le=16_777_216,
        description="disk space for KV evicted from host memory, in MiB; the worker deletes it when it stops (0: none)",
    )
    disk_dir: Path = Field(Path(".models/kv"), description="folder of the disk tier; created with mode 0700")
    timeout_ms: int = Field(20, ge=1, le=10_000, description="timeout of one read or write of KV in Redis, in ms")


class ModelSettings(SettingsGroup):
    """The prepared model's folder (`replyline model prepare`), and the store of versions."""

    dir: Path = Field(
        Path(".models/smollm2-135m-shop-int8"),
        description="folder of the prepared model, with its manifest.json (`replyline model prepare`)",
    )
    versions_dir: Path = Field(
        Path(".models/versions"),
        description=(
            "folder of the registry's versions, one subfolder each (`replyline versions add`); must exist on every "
            "worker's machine"
        ),
    )
    trusted_keys: Path | None = Field(
        None,
        description=(
            "folder of public keys (*.pem): only versions signed by one of them are loaded (empty: signatures are not "
            "checked)"
        ),
    )
    questions: Path | None = Field(
        None,
        description="question set that a version must pass before it gets traffic, JSON Lines (empty: the demo shop's)",
    )
    least_right: float = Field(
        0.5,
        ge=0,
        le=1,
        description=(
            "minimum share of right answers with which a version passes, over all questions and in each language"
        ),
    )


class WorkerSettings(SettingsGroup):
    """One engine, one scheduler and one consumer group member."""

    engine: Literal["native", "onnx", "tensorrt", "tensorrt-rtx", "torch", "upstream", "fake"] = Field(
        "native",
        description=(
            "native: on the CPU, falls back to onnx on an unsupported one; onnx: on the CPU; tensorrt, tensorrt-rtx: "
            "on a GPU; torch: on either; upstream: other servers; fake: scripted, for tests"
        ),
    )
    native_kernel: NativeKernel = Field(
        "auto", description="instruction set that engine=native uses (auto: the fastest that the CPU supports)"
    )
    native_dir: Path | None = Field(
        None, description="folder of engine=native's library (empty: native in `worker.cache_dir`)"
    )
    fallback_engine: Literal["", "native", "onnx"] = Field(
        "",
        description="engine to use if the GPU or its libraries do not work (empty: the worker stops with status 2)",
    )
    cache_dir: Path = Field(
        Path(".models"), description="folder of files computed for this machine: TensorRT plans, measured step costs"
    )
    torch_device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="device of engine=torch (auto: the GPU if there is one)"
    )
    metrics_host: str = Field(
        "127.0.0.1", min_length=1, description="address of /metrics, /health and /ready (:: is every address)"
    )
    metrics_port: int = Field(
        8081, ge=0, le=65_535, description="port of /metrics, /health, /ready and /drain (0: any free port)"
    )
    instance_id: str = Field(
        "",
        description=(
            "group.instance.id of a static member: after a crash it keeps its partitions if it restarts within the "
            "session timeout (empty: dynamic membership)"
        ),
    )
    buckets: tuple[Literal["short", "medium", "long"], ...] = Field(
        ("short", "medium", "long"),
        min_length=1,
        description=(
            "input lengths that this worker serves: short, medium, long; a worker that serves only short is not "
            "delayed by long questions"
        ),
    )
    lane: Lane = Field(
        CHAMPION,
        description=(
            "lane that this worker serves, with its own topics and consumer group: champion, canary, control, light, "
            "cpu, shadow"
        ),
    )
    pool: str = Field(
        "",
        max_length=64,
        description="pool that this worker belongs to, for the autoscaler of that name (empty: any of its lane and "
        "buckets)",
    )
    slots: int = Field(
        8,
        ge=0,
        le=MAX_SLOTS,
        description="maximum sequences decoded together (0: as many as fit the GPU's memory; 8 on a CPU)",
    )
    gpu_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the GPU's memory that this worker may use; 0.5 if two workers share a GPU",
    )
    long_slots_share: float = Field(
        0.0,
        ge=0,
        le=0.9,
        description=(
            "share of the slots reserved for long requests, so that many short ones cannot occupy all slots (0: none; "
            "otherwise at least one slot)"
        ),
    )
    max_length: int = Field(
        2_048, ge=64, le=1_048_576, description="maximum tokens of prompt and answer together in a slot"
    )
    threads: int = Field(0, ge=0, le=256, description="threads of the engine (0: one for each core that it may use)")
    window: WindowKind = Field(
        "off",
        description=(
            "adaptive: the first waiting request is delayed up to 10 ms while others run, otherwise up to 50 ms, so "
            "that more requests share its prefill; off: never delayed"
        ),
    )
    speculation: SpeculationKind = Field(
        "own",
        description=(
            "own: look an answer's next tokens up in its FAQ entries and conversation, and verify several in one step "
            "if that is faster, with the same text (engine=native); tenant: also in recent answers to the tenant's "
            "other customers, which an answer's pace may then reveal; off: never"
        ),
    )
    prefill_chunk_tokens: int = Field(
        256,
        ge=8,
        le=65_536,
        description=(
            "maximum prompt tokens computed in one step; a smaller number makes running answers smoother and first "
            "tokens later"
        ),
    )
    max_waiting: int = Field(
        64, ge=1, le=100_000, description="requests read ahead; at this number the partitions are paused"
    )
    reply_interval_ms: float = Field(
        50.0,
        ge=0,
        le=1_000,
        description="ms between an answer's deltas; the first delta and the end are sent immediately",
    )
    system_prompt: str = Field(SYSTEM_PROMPT, description="text at the beginning of every prompt (empty: none)")
    grounding_entries: int = Field(2, ge=0, le=10, description="FAQ entries in a prompt")
    history_turns: int = Field(5, ge=0, le=50, description="maximum earlier turns in a prompt")
    fake_prefill_ms_per_token: float = Field(0.0, ge=0, description="engine=fake: ms for each prompt token")
    fake_decode_ms_per_step: float = Field(0.0, ge=0, description="engine=fake: ms for each decode step")
    fake_mixes: bool = Field(False, description="engine=fake: compute decode rows and prompts in one call")
    step_limit_s: float = Field(
        0.0,
        ge=0,
        le=3_600,
        description=(
            "seconds after which an engine step counts as hung: the worker leaves its group and exits with status 1, "
            "as it does when it is resumed after a longer pause (SIGSTOP) (0: twice promise.deadline_ms, at least 5 s)"
        ),
    )
    previous_s: float = Field(
        30.0,
        ge=0,
        le=86_400,
        description=(
            "seconds that a replaced model version stays loaded, so that switching back is instant (0: until its last "
            "answers end); the previous champion stays loaded until another version needs its memory (on a GPU until "
            "another is loaded)"
        ),
    )
    drain_s: float = Field(
        10.0,
        ge=0,
        le=300,
        description="seconds that a stopping worker, after it has left its group, spends on answers in flight",
    )

    @property
    def slots_without_gpu(self) -> int:
        """Return the number of slots on a machine without a GPU."""
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


class UpstreamSettings(SettingsGroup):
    """OpenAI-compatible servers that compute answers with `worker.engine=upstream`.

    Each server gets at most `worker.slots` requests at a time, each of at most `worker.max_length` tokens.
    """

    url: tuple[str, ...] = Field((), description="base URLs, comma-separated: http://127.0.0.1:8000/v1")
    model: str = Field("", description="the model's name at the servers (empty: the first one that each server lists)")
    key_file: PasswordFile | None = Field(None, description="file with the API key; a trailing line end is ignored")
    priority: bool = Field(
        False, description="send deadlines as `priority`, for vLLM with --scheduling-policy priority: earliest first"
    )
    silence_ms: int = Field(
        10_000, ge=100, le=600_000, description="close an upstream stream after this long without data, in ms"
    )

    @field_validator("url")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            login = "put the key into the file of upstream.key_file"
            check_url(url, WEB, base=True, form="http://127.0.0.1:8000/v1", login=login)
        if len(set(urls)) < len(urls):
            raise ValueError("an address is listed twice; remove one")
        return tuple([url.rstrip("/") for url in urls])
