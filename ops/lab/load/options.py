"""The options of `replyline bench`, and of its commands for loads: traffic, knee, compare."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import Struct

from ops.command_line import (
    DEFAULT_URL,
    HtmlPath,
    JsonPath,
    OwnBroker,
    Token,
    UrlOfGateway,
    UrlOrOwn,
)
from ops.paths import FILE_TO_READ, FOLDER_TO_READ
from shared.wire.fields import MAX_SEED

Deadline = Annotated[int | None, typer.Option(min=1, help="deadline of each answer, in ms (default: the gateway's)")]


MaxOutputTokens = Annotated[int, typer.Option(min=1, help="maximum tokens of each answer")]


Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="seed of the arrivals and questions")]


def _mix(text: str | None) -> str | None:
    from ops.lab.texts.prompts import parse_mix

    if text is not None:
        parse_mix(text)
    return text


Mix = Annotated[
    str | None,
    typer.Option(
        callback=_mix, help="generated questions instead of the FAQ's, with these shares of lengths: short=0.8,long=0.2"
    ),
]


class LoadOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench` without a command."""

    url: UrlOrOwn = None
    broker: OwnBroker = "embedded"
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="closed loop: number of clients, each asks again when it is answered (default: 8)"),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e6, help="open loop: requests per second; latency is measured from the schedule"),
    ] = None
    arrivals: Annotated[Literal["poisson", "even"], typer.Option(help="arrivals of the open loop")] = "poisson"
    requests: Annotated[int, typer.Option(min=1, help="number of requests measured")] = 64
    warmup: Annotated[int, typer.Option(min=0, help="number of requests before them that are not measured")] = 8
    max_output_tokens: MaxOutputTokens = 64
    input_tokens: Annotated[int | None, typer.Option(min=1, help="generated questions of about this many tokens")] = (
        None
    )
    mix: Mix = None
    deadline_ms: Deadline = None
    connections: Annotated[
        int | None, typer.Option(min=1, help="number of connections (default: as the limits require)")
    ] = None
    new_sessions: Annotated[
        bool, typer.Option("--new-sessions", help="one conversation per question; otherwise one per connection")
    ] = False
    seed: Seed = 0
    json_path: JsonPath = None


class TrafficOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench traffic`."""

    name: Annotated[
        str, typer.Argument(help="kind of traffic in docs/simulation.md: sessions, promotion, surge, spread, …")
    ]
    rate: Annotated[float, typer.Option(min=0.001, max=1e5, help="requests per second where the traffic is at 1.0")]
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="duration of the arrivals; then wait for all answers")
    ] = 120.0
    made_up: Annotated[
        bool | None,
        typer.Option(
            "--made-up/--faq",
            help="generated questions of the traffic's lengths, or the FAQ's (default: depends on the traffic)",
        ),
    ] = None
    url: UrlOrOwn = None
    token: Token = None
    broker: OwnBroker = "embedded"
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="seed of the traffic")] = 1
    json_path: JsonPath = None
    html_path: HtmlPath = None


class KneeOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench knee`."""

    ttft_p99_ms: Annotated[
        float | None, typer.Option(min=0.001, max=1e9, help="upper bound of the model's TTFT p99 (default: none)")
    ] = None
    e2e_p99_ms: Annotated[
        float | None, typer.Option(min=0.001, max=1e9, help="upper bound of the model's end-to-end p99 (default: none)")
    ] = None
    goodput: Annotated[
        float, typer.Option(min=0, max=1, help="minimum share of requests answered by the model in time")
    ] = 0.95
    start: Annotated[float, typer.Option(min=0.1, max=1e5, help="first rate, in requests per second")] = 2.0
    limit: Annotated[float, typer.Option(min=0.1, max=1e5, help="highest rate, in requests per second")] = 1_000.0
    seconds: Annotated[float, typer.Option(min=1, max=3_600, help="duration of the arrivals of each try")] = 20.0
    tries: Annotated[int, typer.Option(min=1, max=15, help="tries per rate; the majority decides")] = 3
    mix: Mix = None
    max_output_tokens: MaxOutputTokens = 64
    deadline_ms: Deadline = None
    url: UrlOrOwn = None
    broker: OwnBroker = "embedded"
    seed: Seed = 0
    json_path: JsonPath = None
    html_path: HtmlPath = None


class CompareOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench compare`."""

    first: Annotated[
        Path, typer.Argument(metavar="A.json", callback=FILE_TO_READ, help="result of bench, bench traffic or replay")
    ]
    second: Annotated[
        Path, typer.Argument(metavar="B.json", callback=FILE_TO_READ, help="the result that may be worse")
    ]
    tolerance: Annotated[float, typer.Option(min=0, max=1, help="difference that is ignored: 0.05 is five percent")] = (
        0.05
    )
    html_path: HtmlPath = None


class LadderOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench ladder`."""

    full: Annotated[
        Path,
        typer.Option(callback=FOLDER_TO_READ, help="the champion's folder: replyline model prepare --precision fp32"),
    ] = Path(".models/smollm2-135m-shop-fp32")
    light: Annotated[Path, typer.Option(callback=FOLDER_TO_READ, help="the light model's folder")] = Path(
        ".models/smollm2-135m-shop-int8"
    )
    loads: Annotated[
        list[float] | None,
        typer.Option("--load", min=0.1, max=100, help="multiples of the champion's; repeatable (default: 1, 2, 3)"),
    ] = None
    rate: Annotated[
        float | None, typer.Option(min=0.01, max=1e4, help="questions a second at 1 (default: measured first)")
    ] = None
    seconds: Annotated[float, typer.Option(min=1, max=3_600, help="of arrivals in each run")] = 40.0
    rounds: Annotated[int, typer.Option(min=1, max=50, help="of each load, with the ladder and without in turn")] = 2
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="of arrivals and questions")] = 0
    json_path: JsonPath = None


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline replay`."""

    path: Annotated[Path, typer.Argument(metavar="FILE", callback=FILE_TO_READ, help="file of `replyline record`")]
    url: UrlOfGateway = DEFAULT_URL
    token: Token = None
    speed: Annotated[
        float, typer.Option(min=0.001, max=1_000, help="2: in half the time; deadlines are not changed")
    ] = 1.0
    json_path: JsonPath = None
    html_path: HtmlPath = None
