"""The options of `replyline plan`."""

from typing import Annotated, Literal

import typer
from msgspec import Struct

from ops.command_line import Costs, JsonPath
from shared.wire.fields import MAX_SEED


class PlanOptions(Struct, frozen=True, kw_only=True):
    """The forecast: `chats` whose customers think for `think_s` between questions, or `rate` questions a second; at the
    peak `surge` times that. Prices are in any one currency."""

    chats: Annotated[int | None, typer.Option(min=1, max=100_000_000, help="customers who chat at the same time")] = (
        None
    )
    think_s: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="of each, between an answer and the next question")
    ] = 40.0
    rate: Annotated[float | None, typer.Option(min=0.001, max=1e7, help="questions a second, in place of --chats")] = (
        None
    )
    surge: Annotated[float, typer.Option(min=1, max=1_000, help="the peak, in multiples of that")] = 1.0
    turns: Annotated[float, typer.Option(min=1, max=1_000, help="questions of a conversation")] = 4.0
    mix: Annotated[
        Literal["poisson", "spread", "heavy", "bimodal", "sessions"],
        typer.Option(help="what is asked: as in replyline simulate --trace"),
    ] = "poisson"
    costs: Costs = "cpu"
    profile: Annotated[
        Literal["cpu", "gpu"] | None, typer.Option(help="the product's deadlines (default: by the costs)")
    ] = None
    slots: Annotated[int, typer.Option(min=1, max=4_096, help="sequences that a worker decodes together")] = 16
    attainment: Annotated[
        float, typer.Option(min=0.01, max=0.9999, help="share of the questions that the model answers whole in time")
    ] = 0.95
    headroom: Annotated[float, typer.Option(min=0, max=0.95, help="share of everything that is free at the peak")] = 0.3
    seconds: Annotated[float, typer.Option(min=10, max=3_600, help="of arrivals in each simulation")] = 120.0
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="the same seed, the same plan")] = 1
    worker_price: Annotated[float | None, typer.Option(min=0, max=1e9, help="of a worker's hour")] = None
    gateway_price: Annotated[float | None, typer.Option(min=0, max=1e9, help="of a gateway's hour")] = None
    broker_price: Annotated[float | None, typer.Option(min=0, max=1e9, help="of a broker's hour")] = None
    redis_price: Annotated[float | None, typer.Option(min=0, max=1e9, help="of an hour of a GiB of Redis")] = None
    json_path: JsonPath = None
