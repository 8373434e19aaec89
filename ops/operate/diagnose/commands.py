"""`replyline diagnose`: find which part slows a running system down, with the evidence and the remedy."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from ops.command_line import settings_of
from ops.operate.diagnose.addresses import check_process, check_prometheus, check_way_in
from ops.operate.diagnose.knowledge import Cause, causes
from ops.operate.diagnose.look import look, targets_of
from ops.operate.diagnose.rules import found_in
from ops.operate.diagnose.system import Role, System
from ops.operate.incidents.commands import DEFAULT_FOLDER, seen_before
from ops.operate.incidents.incident import new_incident
from ops.operate.incidents.shelf import Shelf
from ops.paths import FOLDER_TO_WRITE
from ops.stack.demo_env import demo_remedy
from shared.nouns import counted
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.settings.gateway import GatewaySettings
from shared.settings.worker import WorkerSettings
from shared.sockets.listening import host_port

_RUNBOOKS = "docs/runbooks/"


class Diagnosis(Struct, frozen=True):
    """The result of a diagnosis.

    Attributes:
        bottleneck: the cause that explains the others; None if nothing is at its limit
        found: the evidence for each cause, in that order
        seconds: how long the system was observed
    """

    bottleneck: str | None
    found: dict[str, list[str]]
    seconds: float


def diagnose(
    gateway: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT of a gateway's metrics (default: from the settings)")
    ] = None,
    worker: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT of a worker's metrics (default: from the settings)")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="find more gateways and workers through this Prometheus")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="the WebSocket address that customers use (default: the gateway of the settings)")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, max=60, help="how long to observe the system")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="print the verdict as JSON")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="store the result as an incident")] = False,
    folder: Annotated[
        Path,
        typer.Option(
            "--incidents",
            metavar="FOLDER",
            callback=FOLDER_TO_WRITE,
            help="folder of the incidents, one JSON file each",
        ),
    ] = DEFAULT_FOLDER,
) -> None:
    """Find what slows a running system down: from the metrics of every process, and from the response times of Kafka,
    Redis and a WebSocket.

    Exit status: 0 if nothing is at its limit, 1 if something is, 2 if the options are not valid.
    """
    system, way_in = asyncio.run(_look(settings_of("diagnose"), gateway, worker, prometheus, url, seconds))
    found = found_in(system)
    if not system.all_windows and (remedy := demo_remedy()):
        typer.echo(f"replyline: no process answers{remedy}", err=True)
    verdict = Diagnosis(bottleneck=next(iter(found), None), found=found, seconds=seconds)
    shelf = Shelf(folder)
    if as_json:
        typer.echo(msgspec.json.encode(verdict).decode())
    else:
        _print(Console(highlight=False, soft_wrap=True), verdict, causes(), looked_at(system, way_in))
        for line in seen_before(found, shelf.all()):
            typer.echo(line)
    if keep and not found:
        typer.echo("nothing is kept", err=as_json)
    elif keep:
        path = shelf.keep(new_incident(found, now_unix_ms()))
        typer.echo(f"kept: {path}; what helped: replyline incidents note {path.stem} TEXT", err=as_json)
    raise typer.Exit(0 if verdict.bottleneck is None else 1)


async def _look(
    settings: Settings,
    gateways: Sequence[str] | None,
    workers: Sequence[str] | None,
    prometheus: str | None,
    url: str | None,
    seconds: float,
) -> tuple[System, str]:
    """Return the observations and the customers' WebSocket address. Raises `SettingsError` for an invalid address, and
    if Prometheus does not list its targets."""
    for option, addresses in (("--gateway", gateways), ("--worker", workers)):
        for address in addresses or ():
            check_process(option, address)
    if url is not None:
        check_way_in("--url", url)
    edge = settings.gateway
    if prometheus is not None:
        check_prometheus("--prometheus", prometheus)
        targets = await targets_of(prometheus)
        processes = [*targets, *(named for named in _named(gateways or (), workers or ()) if named not in targets)]
    else:
        processes = _named(gateways or _own(edge), workers or _own(settings.worker))
    way_in = url or ("" if gateways or prometheus else f"ws://{host_port(edge.host, edge.port)}/ws")
    return await look(settings, processes, url=way_in, seconds=seconds), way_in


def _own(process: GatewaySettings | WorkerSettings) -> list[str]:
    """Return the address of a process's metrics by the settings; none if its port is any free one."""
    return [host_port(process.metrics_host, process.metrics_port)] if process.metrics_port else []


def _named(gateways: Sequence[str], workers: Sequence[str]) -> list[tuple[Role, str]]:
    at = ((Role.GATEWAY, gateways), (Role.WORKER, workers))
    return [(role, f"http://{address}/metrics") for role, addresses in at for address in addresses]


def looked_at(system: System, way_in: str) -> str:
    """Return a line that says which processes the result is based on."""
    answering, asked = len(system.all_windows), counted(len(system.processes), "process", "processes")
    lag = f"; the group's lag: unknown, {system.lag}" if isinstance(system.lag, str) else ""
    is_known = any(found.role is Role.WORKER for found in system.processes)
    workers = "" if is_known else "; no worker is known (--worker names one)"
    return (
        f"{answering} of {asked} answered; customers connect to: {way_in or 'unknown (--url names it)'}{workers}{lag}"
    )


def _print(out: Console, verdict: Diagnosis, known: Mapping[str, Cause], basis: str) -> None:
    out.print(Text(basis, style="dim"))
    if verdict.bottleneck is None:
        out.print("nothing is at its limit")
        return
    for number, (name, evidence) in enumerate(verdict.found.items()):
        cause = known[name]
        if number == 0:
            out.print(Text.assemble("the bottleneck: ", (cause.part, "bold red"), f" – {cause.symptom}"))
        else:
            out.print(Text.assemble("also at its limit: ", (cause.part, "bold")))
        for line in evidence:
            out.print(Text(f"  {line}"))
        if number == 0:
            out.print("why that is, as a rule:")
            for line in cause.because:
                out.print(Text(f"  - {line}"))
            out.print("what to do:")
            for line in cause.remedies:
                out.print(Text(f"  - {line}"))
            out.print(Text(f"  more: {_RUNBOOKS}{cause.runbook}"))
