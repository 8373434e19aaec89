"""The maintainers' programs of `replyline bench`, and their options."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from ops.command_line import JsonPath, run, settings_of
from ops.lab.load.commands import bench_app
from ops.lab.optimize.commands import optimize_app
from ops.lab.own_system import settings_of_own_system
from ops.paths import FILE_TO_WRITE, FOLDER_TO_READ, FOLDER_TO_WRITE, PATH_TO_READ
from shared.errors import SettingsError
from tests.bench.cell import Bench


def _peer(peer: str | None) -> str | None:
    if peer is not None:
        from tests.bench.llama_client import check_peer

        check_peer(peer)
    return peer


Rounds = Annotated[int, typer.Option(min=1, help="of all cells in turn: medians count")]
Peer = Annotated[
    str | None,
    typer.Option(metavar="URL", callback=_peer, help="a llama-server, asked in the same rounds; start: start one"),
]


@bench_app.command("path")
def path(
    rates: Annotated[str, typer.Option(help="requests a second, comma-separated")] = "200,500",
    seconds: Annotated[float, typer.Option(min=0.001, max=3_600, help="measured at each rate, in each round")] = 10.0,
    warmup: Annotated[float, typer.Option(min=0, max=3_600, help="seconds before, at each rate")] = 3.0,
    arrivals: Annotated[Literal["poisson", "even"], typer.Option(help="of the requests")] = "poisson",
    profile: Annotated[
        bool, typer.Option("--profile", help="a question's CPU by process and step too; needs py-spy, slows the path")
    ] = False,
    rounds: Rounds = 3,
    json_path: JsonPath = None,
) -> None:
    """The path's own cost: no engine time, Apache Kafka; compared with a bare prototype of the same hops."""
    from tests.bench.path import TARGETS, Asking, bench_path, parse_rates

    parsed = parse_rates(rates)
    bench = Bench(rounds=rounds, json_path=json_path, engine="fake, no latency", broker="kafka", targets=TARGETS)
    settings, asking = settings_of("bench"), Asking(seconds=seconds, warmup_s=warmup, arrivals=arrivals)
    run(lambda: bench_path(settings, bench, parsed, asking, Console(stderr=True), profiled=profile))


@bench_app.command("stream")
def stream(
    clients: Annotated[int, typer.Option(min=1, help="closed loop, and the engine's batch")] = 8,
    requests: Annotated[int, typer.Option(min=1, help="measured in each round")] = 96,
    max_output_tokens: Annotated[int, typer.Option(min=1, help="of each answer")] = 64,
    peer: Peer = None,
    rounds: Rounds = 3,
    json_path: JsonPath = None,
) -> None:
    """The whole system's tokens a second, compared with those of the engine alone, and of a llama-server."""
    from tests.bench.stream import TARGETS, StreamOptions, bench_stream

    settings = settings_of_own_system()
    engine = f"{settings.worker.engine} {settings.model.dir.name}"
    bench = Bench(rounds=rounds, json_path=json_path, engine=engine, broker="embedded", targets=TARGETS)
    options = StreamOptions(clients=clients, requests=requests, max_output_tokens=max_output_tokens, peer=peer)
    run(lambda: bench_stream(settings, bench, options, Console(stderr=True)))


@bench_app.command("gateway")
def gateway(
    start: Annotated[int, typer.Option(min=1, help="streams at first")] = 200,
    limit: Annotated[int, typer.Option(min=1, help="streams at most")] = 4_000,
    seconds: Annotated[float, typer.Option(min=1, max=3_600, help="measured at each step")] = 4.0,
    held: Annotated[int, typer.Option(min=0, help="idle connections held (0: leave it out)")] = 5_000,
    rounds: Rounds = 1,
    json_path: JsonPath = None,
) -> None:
    """Streams, CPU and memory of one gateway process on one core, compared with a bare websockets server."""
    from tests.bench.gateway.program import TARGETS, GatewayOptions, bench_gateway

    if start > limit:
        raise SettingsError(f"--start {start}: is above --limit {limit}")
    engine = "synthetic replier"
    bench = Bench(rounds=rounds, json_path=json_path, engine=engine, broker="kafka", targets=TARGETS)
    settings, options = settings_of("bench"), GatewayOptions(start=start, limit=limit, seconds=seconds, held=held)
    run(lambda: bench_gateway(settings, bench, options, Console(stderr=True)))


@bench_app.command("kv")
def kv(
    conversations: Annotated[int, typer.Option(min=1, help="whole ones in all rounds; languages in turn")] = 24,
    clients: Annotated[int, typer.Option(min=1, help="closed loop: concurrent conversations")] = 8,
    max_output_tokens: Annotated[int, typer.Option(min=1, help="of each answer")] = 48,
    cells: Annotated[str, typer.Option(help="what to measure, comma-separated")] = "whole,ttft",
    peer: Peer = None,
    rounds: Rounds = 3,
    json_path: JsonPath = None,
) -> None:
    """What the conversations' kept KV is worth: answers a second, prompt tokens computed, turn 5's first token."""
    from tests.bench.kv.program import TARGETS, KvOptions, bench_kv

    options = KvOptions(
        conversations=conversations,
        clients=clients,
        max_output_tokens=max_output_tokens,
        kinds=tuple(name.strip() for name in cells.split(",") if name.strip()),
        peer=peer,
    )
    options.check(rounds)
    settings = settings_of_own_system()
    engine = f"{settings.worker.engine} {settings.model.dir.name}"
    bench = Bench(rounds=rounds, json_path=json_path, engine=engine, broker="embedded", targets=TARGETS)
    run(lambda: bench_kv(settings, bench, options, Console(stderr=True)))


@bench_app.command("speculation")
def speculation(
    answers: Annotated[int, typer.Option(min=8, help="to the first packaged questions that the model is asked")] = 24,
    rounds: Rounds = 3,
    json_path: JsonPath = None,
) -> None:
    """The engine's tokens a second on the shop's answers, with tokens looked up and verified, and without."""
    from tests.bench.speculation import TARGETS, bench_speculation

    settings = settings_of_own_system()
    engine = f"{settings.worker.engine} {settings.model.dir.name}"
    bench = Bench(rounds=rounds, json_path=json_path, engine=engine, broker="unknown", targets=TARGETS)
    run(lambda: bench_speculation(settings, bench, answers, Console(stderr=True)))


@bench_app.command("engines")
def engines(
    names: Annotated[
        str, typer.Option("--engines", help="comma-separated")
    ] = "native,onnx,torch,tensorrt,tensorrt-rtx,transformers,llama.cpp",
    batches: Annotated[str, typer.Option(help="rows decoded together, comma-separated")] = "1,4,8,16",
    contexts: Annotated[str, typer.Option(help="tokens in each row before, comma-separated")] = "64,800",
    new_tokens: Annotated[int, typer.Option(min=2, help="decoded in each row")] = 64,
    prefill: Annotated[str, typer.Option(help="tokens of a prompt, comma-separated")] = "128,256,512",
    over: Annotated[str, typer.Option(help="tokens that its slot holds already, comma-separated")] = "0,600,1000",
    llama: Annotated[
        Path | None,
        typer.Option(callback=PATH_TO_READ, help="llama.cpp's programs (default: those of ops/setup/llama-server)"),
    ] = None,
    gguf: Annotated[
        Path | None,
        typer.Option(callback=PATH_TO_READ, help="the same model for llama.cpp (default: the demo's in Q4_0)"),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(callback=PATH_TO_READ, help="the same model for transformers (default: the demo's)")
    ] = None,
    rounds: Rounds = 3,
    json_path: JsonPath = None,
) -> None:
    """Every engine that this machine can run, and its peers: decoding, prompts and mixed steps, Python's share."""
    from tests.bench.engines.choice import Peers
    from tests.bench.engines.program import EnginesOptions, bench_engines, parse_engines, parse_numbers
    from tests.bench.engines.timing import Sizes
    from tests.support.servers.llama_server import PROGRAM

    options = EnginesOptions(
        engines=parse_engines(names),
        sizes=Sizes(
            batches=parse_numbers("--batches", batches, 1, 512),
            contexts=parse_numbers("--contexts", contexts, 1, 65_536),
            new_tokens=new_tokens,
            prefills=parse_numbers("--prefill", prefill, 1, 65_536),
            pasts=parse_numbers("--over", over, 0, 65_536),
        ),
        peers=Peers(llama=llama or PROGRAM.parent, gguf=gguf, source=source),
    )
    settings = settings_of_own_system()
    bench = Bench(rounds=rounds, json_path=json_path, engine=f"engines of {settings.model.dir.name}", broker="unknown")
    run(lambda: bench_engines(settings, bench, options, Console(stderr=True)))


@bench_app.command("shape")
def shape(
    size: Annotated[Literal["0.5b", "1.5b"], typer.Argument(help="with the numbers of Qwen2.5's")],
    target: Annotated[Path, typer.Argument(callback=FILE_TO_WRITE, help="the GGUF file to write")],
) -> None:
    """Write a random model of a larger size, for llama.cpp (--gguf) and for `replyline model prepare --source`."""
    from tests.bench.engines.shape import SHAPES, write_shape

    async def write() -> None:
        write_shape(SHAPES[size], target)

    run(write)


@bench_app.command("memory")
def memory(
    names: Annotated[str, typer.Option("--engines", help="comma-separated")] = "native,onnx",
    slots: Annotated[int, typer.Option(min=1, help="all full")] = 16,
    length: Annotated[int, typer.Option(min=2, help="tokens that a slot holds")] = 2_048,
    rounds: Rounds = 1,
    json_path: JsonPath = None,
) -> None:
    """Memory resident with every slot full, and the time that a prepared folder takes to load, by engine."""
    from tests.bench.engines.program import parse_engines
    from tests.bench.memory import bench_memory

    settings, engines = settings_of_own_system(), parse_engines(names)
    bench = Bench(rounds=rounds, json_path=json_path, engine=f"engines of {settings.model.dir.name}", broker="unknown")
    run(lambda: bench_memory(settings, bench, engines, slots, length, Console(stderr=True)))


@bench_app.command("upstream")
def upstream(
    server: Annotated[
        Path | None,
        typer.Option(callback=PATH_TO_READ, help="llama-server (default: the one of ops/setup/llama-server)"),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="requests at a time, of llama-server and of the worker")] = 4,
    seconds: Annotated[float, typer.Option(min=3, max=3_600, help="of arrivals at each load, each side")] = 20.0,
    deadline_ms: Annotated[
        int | None, typer.Option(min=100, help="of a whole answer (default: 2.5 times what one takes among --slots)")
    ] = None,
    max_output_tokens: Annotated[int, typer.Option(min=1, help="of each answer")] = 16,
    rounds: Rounds = 3,
    json_path: JsonPath = None,
) -> None:
    """A llama-server by itself and behind Replyline, at 1, 3 and 10 times its capacity, and killed."""
    from tests.bench.upstream import TARGETS, UpstreamOptions, bench_upstream
    from tests.support.servers.llama_server import PROGRAM

    options = UpstreamOptions(
        server=server or PROGRAM,
        slots=slots,
        seconds=seconds,
        deadline_ms=deadline_ms,
        max_output_tokens=max_output_tokens,
    )
    bench = Bench(rounds=rounds, json_path=json_path, engine="llama-server", broker="embedded", targets=TARGETS)
    run(lambda: bench_upstream(settings_of("bench"), bench, options, Console(stderr=True)))


@bench_app.command("start")
def start(rounds: Annotated[int, typer.Option(min=1, help="starts")] = 5, json_path: JsonPath = None) -> None:
    """A worker's time from its process's start to its first answer, and the memory that the next one shares."""
    from tests.bench.start import bench_start

    settings = settings_of_own_system()
    run(lambda: bench_start(settings, rounds, json_path, Console(stderr=True)))


@bench_app.command("scale")
def scale(
    sizes: Annotated[str, typer.Option(help="workers x gateways, comma-separated")] = "1x1,2x1,4x1,8x1,8x2,8x4",
    rounds: Rounds = 1,
    json_path: JsonPath = None,
) -> None:
    """Answers a second as scripted workers and gateways are added, compared with linear growth."""
    from tests.bench.scale import bench_scale, parse_sizes

    parsed = parse_sizes(sizes)
    bench = Bench(rounds=rounds, json_path=json_path, engine="fake, 50 ms a step", broker="kafka")
    settings = settings_of("bench")
    run(lambda: bench_scale(settings, bench, parsed, Console(stderr=True)))


@optimize_app.command("matrix")
def matrix(
    models: Annotated[
        Path, typer.Option("--dir", callback=FOLDER_TO_WRITE, help="where the forms are prepared")
    ] = Path(".models"),
    answers: Annotated[int, typer.Option(min=16, help="that each closed loop gives")] = 16,
    prompts: Annotated[int, typer.Option(min=8, help="of each kind of text whose predictions are compared")] = 32,
    questions: Annotated[int | None, typer.Option(min=1, help="English ones asked of each form (default: all)")] = None,
    taught: Annotated[
        Path | None, typer.Option(callback=FOLDER_TO_READ, help="the pruned model after `optimize distill`, prepared")
    ] = None,
    student: Annotated[
        Path | None, typer.Option(callback=FOLDER_TO_READ, help="a student of half the size, prepared")
    ] = None,
    rounds: Rounds = 2,
    json_path: JsonPath = None,
) -> None:
    """Compare smaller and faster forms of the demo's model, alone and combined: speed, memory, answers, agreement."""
    from tests.bench.smaller.program import MatrixOptions, measure_matrix

    options = MatrixOptions(
        models=models,
        answers=answers,
        prompts=prompts,
        questions=questions,
        taught=taught,
        student=student,
        rows_path=json_path,
    )
    settings = settings_of_own_system()
    bench = Bench(rounds=rounds, json_path=None, engine="native and onnx", broker="unknown")
    run(lambda: measure_matrix(settings, bench, options, Console(stderr=True)))
