"""`replyline rollout`: a new version gets a growing share of conversations, and is rolled back by evidence."""

import asyncio
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from msgspec import Struct

from ops.command_line import WithLab, by_options, settings_of
from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import GROUP, LONGEST_MS, Plan, classes_of, pack, steps_of
from ops.lifecycle.rollout.policy import Decision, Health, lacks_room, next_state, standings
from ops.lifecycle.rollout.records import Rollout, decisions, foreign_rule, newest, next_record, takes_off
from ops.lifecycle.rollout.surroundings import Surroundings, wanted
from ops.lifecycle.versions.moves import allowed, in_force
from ops.lifecycle.versions.using import ready
from ops.lifecycle.versions.writer import MoveLost, RegistryWriter, read_registry, warn_unreadable
from ops.operate.diagnose.addresses import check_option
from ops.operate.leader import Lease, lease_of
from ops.operate.letters import when
from ops.operate.listing import show_table
from ops.paths import FILE_TO_WRITE
from shared.errors import BrokerUnavailable, ModelError
from shared.hosts import WEB
from shared.kafka import LogReader
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from shared.sockets.listening import ListenAddress
from shared.versions.registry import Noted, Registry
from shared.versions.version import abbreviated
from shared.wire.fields import Revision
from shared.wire.lanes import CHAMPION
from shared.wire.topics import BROADCAST_PARTITION, BUCKETS

rollout_app = typer.Typer(
    help="Roll a new version out to a growing share of conversations, and roll it back if it is worse.",
    no_args_is_help=True,
    cls=WithLab,
)

_CLIENT: Final = "replyline-rollout-command"
_NOT_HELD: Final = "it is not paused, and no step waits for an approval; see: replyline rollout status"
_RESUME: Final = "; continue it: replyline rollout resume"

Why = Annotated[str, typer.Option("--reason", help="why; it is recorded")]


class StartOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline rollout start`."""

    version: Annotated[str, typer.Argument(metavar="VERSION", help="id (6 digits or more) or name, added and checked")]
    steps: Annotated[str, typer.Option(help="percent of the conversations, each larger than the one before")] = (
        "1,10,25"
    )
    control: Annotated[
        Literal["same", "none"], typer.Option(help="as many conversations on the champion's version, or none")
    ] = "same"
    classes: Annotated[str, typer.Option(help="the classes that must each show evidence")] = ",".join(BUCKETS)
    min_answers: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="of each side and class before the next step")
    ] = 50
    min_s: Annotated[float, typer.Option("--min-s", min=0, max=604_800, help="seconds of each step")] = 60.0
    warmup: Annotated[int, typer.Option(min=0, max=100_000, help="first answers of each side that do not count")] = 3
    alpha: Annotated[
        float, typer.Option(min=1e-6, max=0.2, help="chance of rolling back what is not worse by the margin")
    ] = 0.05
    margin: Annotated[float, typer.Option(min=0.001, max=0.5, help="share of bad answers more that is let pass")] = 0.02
    tolerated: Annotated[float, typer.Option(min=0, max=0.5, help="usual share of failed or missed answers")] = 0.05
    progress_s: Annotated[
        float, typer.Option("--progress-s", min=60, max=31_536_000, help="ends it without a new step for so long, in s")
    ] = 86_400.0
    wait_s: Annotated[float, typer.Option("--wait-s", min=3.0, max=3_600.0, help="for the canary to load it")] = 300.0
    query: Annotated[
        str | None, typer.Option(metavar="PROMQL", help="one number of your Prometheus; above --at-most: rolled back")
    ] = None
    at_most: Annotated[float | None, typer.Option(min=-1e12, max=1e12, help="the bound of --query")] = None
    approve: Annotated[bool, typer.Option("--approve", help="each step waits for: replyline rollout approve")] = False
    ab: Annotated[bool, typer.Option("--ab", help="compare two versions at one step; nothing is promoted")] = False
    reason: Why = "by hand"


def start(options: StartOptions) -> None:
    """Begin a rollout: the canary gets its first share now, `rollout run` decides what comes next."""
    try:
        steps = steps_of(options.steps, control=options.control == "same")
        classes_of(options.classes)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if options.ab and (len(steps) > 1 or options.control == "none"):
        raise typer.BadParameter("--ab compares with a control at one step: write --ab --steps 50")
    if len(steps) * options.min_s * 1_000 > LONGEST_MS:
        raise typer.BadParameter(f"--min-s {options.min_s:g}: a rollout ends after 13 days; write a shorter one")
    if (options.query is None) != (options.at_most is None):
        raise typer.BadParameter("--query and --at-most go together: write --query 'PROMQL' --at-most 0.01")
    typer.echo(asyncio.run(_start(settings_of("rollout"), options, steps)))


rollout_app.command()(by_options(start))


@rollout_app.command()
def run(
    gateways: Annotated[
        list[str] | None,
        typer.Option("--gateway", metavar="URL", help="/metrics of a gateway on another Kafka; repeatable"),
    ] = None,
    host: Annotated[str, typer.Option("--metrics-host", help="address of /metrics, /health and /ready")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--metrics-port", min=0, max=65_535, help="its port (0: a free one)")] = 8083,
) -> None:
    """Lead rollouts until Ctrl-C. Run two: one leads, the other takes over."""
    from ops.lifecycle.rollout.controller import serve
    from shared.process.lifetime import run_until_signal

    for address in gateways or ():
        check_option("--gateway", address, WEB, "http://HOST:PORT/metrics", login="name a page that asks for none")
    settings = settings_of("rollout")
    listening = ListenAddress(host, port, "--metrics-host", "--metrics-port")
    raise typer.Exit(run_until_signal(lambda stop: serve(settings, gateways or (), listening, stop)))


@rollout_app.command()
def status() -> None:
    """Say where the newest rollout stands, and every decision with its numbers."""
    registry = asyncio.run(read_registry(settings_of("rollout").kafka))
    warn_unreadable(registry)
    rollout = _found(registry)
    typer.echo(_told(rollout, registry))
    if rollout.ended is None:
        typer.echo(asyncio.run(_controller(settings_of("rollout").kafka)))
    rows = [[when(each.unix_ms), each.what, each.author, each.why, each.numbers] for each in decisions(rollout)]
    show_table(("when", "what", "by", "why", "numbers"), rows, folds={"why", "numbers"})


@rollout_app.command()
def pause(reason: Why = "by hand") -> None:
    """Promote nothing until `resume`; evidence against the canary still rolls it back."""
    asyncio.run(_note(settings_of("rollout"), "paused", reason))


@rollout_app.command()
def resume(reason: Why = "by hand") -> None:
    """Continue after `pause`."""
    asyncio.run(_note(settings_of("rollout"), "resumed", reason))


@rollout_app.command()
def approve(reason: Why = "by hand") -> None:
    """Let a rollout of `start --approve` take its next step, once the evidence allows it."""
    asyncio.run(_note(settings_of("rollout"), "approved", reason))


@rollout_app.command()
def stop(reason: Why = "by hand") -> None:
    """Take the canary away now: all conversations get the champion."""
    asyncio.run(_stop(settings_of("rollout"), reason))


@rollout_app.command()
def report(
    path: Annotated[
        Path, typer.Option("--html", metavar="FILE", callback=FILE_TO_WRITE, help="the page to write")
    ] = Path("rollout.html"),
) -> None:
    """Write the newest rollout's page: the evidence over its answers, the shares over time, every decision."""
    from ops.lifecycle.rollout.report import follow, render

    settings = settings_of("rollout")
    rollout = _found(asyncio.run(read_registry(settings.kafka)))
    path.write_text(render(rollout, asyncio.run(follow(settings.kafka, rollout))), encoding="utf-8")
    typer.echo(f"page: {path}")


def _found(registry: Registry, *, active: bool = False) -> Rollout:
    """Return the newest rollout. Raises `ModelError` if none was started, or with `active` if it has ended."""
    rollout = newest(registry)
    foreign = foreign_rule(registry, rollout, wire_unix_ms())
    if foreign is not None and (active or rollout is None):
        raise ModelError(foreign)
    if rollout is None:
        raise ModelError("there is no rollout; begin one: replyline rollout start VERSION")
    if active and rollout.ended is not None:
        raise ModelError(f"rollout {rollout.id} has ended: {rollout.ended.reason}")
    return rollout


async def _start(settings: Settings, options: StartOptions, steps: tuple[float, ...]) -> str:
    async with RegistryWriter.opened(settings.kafka, None) as writer:
        registry = writer.registry
        plan = _plan(registry, options, steps, 0)
        lanes = await ready(writer, settings.kafka, wanted(plan), options.wait_s, typer.echo)
        around = Surroundings(lanes).health(plan, registry.state, 0.0, now_unix_ms())
        if (no_room := lacks_room(plan, steps[0], around)) is not None:
            raise ModelError(no_room)
        offset = await _end(settings)
        await writer.log.catch_up()  # others may have started one while this waited
        plan = _plan(registry, options, steps, offset)
        # The salt is in the name: of two that are started at the same moment, each has its own plan and notes.
        now, name = round(wire_unix_ms()), f"{plan.version}-{plan.epoch}-{plan.salt[:4]}"
        await writer.write(Noted(rollout=name, kind="started", reason=options.reason, unix_ms=now, plan=pack(plan)))
        found = _found(registry)
        first = next_record(found, registry, Evidence(plan), Health(), now) if found.id == name else None
        if first is not None:  # else a controller was quicker
            await writer.write(first)
        rollout = _found(registry, active=True)
        if rollout.id != name:
            raise ModelError(f"rollout {rollout.id} was started a moment before; see: replyline rollout status")
        return f"rollout {name}: {rollout.moves[0].reason}; decided by: replyline rollout run"


def _plan(registry: Registry, options: StartOptions, steps: tuple[float, ...], offset: int) -> Plan:
    """Raise `ModelError` where the version may have no traffic, or another rollout is not over."""
    version, state, running = allowed(registry, options.version), registry.state, newest(registry)
    if registry.blocked is not None:
        raise ModelError(f"{registry.blocked}; nothing was started")
    if running is not None and running.ended is None:
        raise ModelError(f"rollout {running.id} is not over; end it first: replyline rollout stop")
    if (foreign := foreign_rule(registry, running, wire_unix_ms())) is not None:
        raise ModelError(foreign)
    champion = state.aliases.get(CHAMPION)
    if champion is None:
        raise ModelError("there is no champion to compare with; name one: replyline versions use VERSION")
    if champion == version.id:
        raise ModelError(f"{options.version}: is the champion already; name another version: replyline versions list")
    if (loading := state.loading.get(CHAMPION, champion)) != champion:
        raise ModelError(f"the champion's workers load {loading}; take it off first: replyline versions unload")
    if state.effective_unix_ms > wire_unix_ms():
        raise ModelError(f"epoch {state.epoch} waits for its time; take it off first: replyline versions rollback")
    return Plan(
        version=version.id,
        champion=champion,
        steps=steps,
        classes=classes_of(options.classes),
        control=options.control == "same",
        at_most=options.at_most or 0.0,
        query=options.query,
        approve=options.approve,
        min_answers=options.min_answers,
        min_s=options.min_s,
        ab=options.ab,
        warmup=options.warmup,
        alpha=options.alpha,
        margin=options.margin,
        tolerated=options.tolerated,
        progress_s=options.progress_s,
        salt=secrets.token_hex(8),
        offset=offset,
        epoch=registry.epoch + 1,
    )


async def _end(settings: Settings) -> int:
    """Return the offset of the next observation."""
    topic = settings.kafka.topics.observations
    reader = LogReader(settings.kafka, client_id=_CLIENT, topic=topic, partition=BROADCAST_PARTITION)
    try:
        await reader.start()
        return await reader.end()
    finally:
        await reader.stop()


async def _note(settings: Settings, kind: str, reason: str) -> None:
    """Raise `ModelError` where the rollout is in no state for it."""
    async with RegistryWriter.opened(settings.kafka, None) as writer:
        rollout = _found(writer.registry, active=True)
        held, waits = rollout.held is not None, rollout.paused is not None
        if not {"paused": not held, "resumed": held, "approved": waits and not held}[kind]:
            why_not = f"{rollout.paused or _NOT_HELD}{_RESUME if held else ''}"
            raise ModelError(f"rollout {rollout.id} cannot be {kind}: {why_not}")
        told = f"{kind} by {writer.author}: {reason}"
        now, of_step = round(wire_unix_ms()), {"epoch": float(writer.registry.epoch)}
        await writer.write(Noted(rollout=rollout.id, kind=kind, reason=told, unix_ms=now, numbers=of_step))
        late = await _take_epoch(writer, rollout, f"rollout {told}") if kind == "paused" else ""
        typer.echo(f"rollout {rollout.id}: {told}{late}")


async def _take_epoch(writer: RegistryWriter, rollout: Rollout, reason: str) -> str:
    """Take an epoch behind a pause, so that no step counts that was decided without it. Return which steps were
    written before that, as the end of a sentence."""
    while (paused := newest(writer.registry)) is not None and paused.id == rollout.id and paused.begun:
        taken = paused.own_moves[len(rollout.own_moves) :]
        late = "".join(f"; a moment before, epoch {move.epoch} was written: {move.reason}" for move in taken)
        if paused.ended is not None or paused.ending is not None or writer.registry.blocked is not None:
            return late
        now = wire_unix_ms()
        with suppress(MoveLost):  # else another epoch was written first: take the one behind it
            waiting, state = writer.registry.waiting(now), in_force(writer.registry, now)
            await writer.move(state, reason, waiting=waiting)
            return late
    return ""


async def _stop(settings: Settings, reason: str) -> None:
    """Raise `MoveLost` where another author was first."""
    async with RegistryWriter.opened(settings.kafka, None) as writer:
        registry, now = writer.registry, round(wire_unix_ms())
        rollout, epoch = _found(registry, active=True), registry.epoch + 1
        state = next_state(rollout.plan, Decision(kind="end", reason=reason), registry.state_at(now), epoch)
        await writer.move(state, f"rollout stopped: {reason}{(gone := takes_off(registry, now))}")
        ended = next_record(_found(registry), registry, Evidence(rollout.plan), Health(), now)
        if ended is not None:  # else a controller was quicker
            await writer.write(ended)
        typer.echo(f"rollout {rollout.id} has ended: all conversations get the champion{gone}")


def _told(rollout: Rollout, registry: Registry) -> str:
    """Return in three lines which versions are compared, which share the canary has, and why it has no other."""
    plan, moves = rollout.plan, rollout.own_moves
    sides = f"canary {_named(registry, plan.version)} beside champion {_named(registry, plan.champion)}"
    if rollout.ended is not None:
        return f"rollout {rollout.id}\n{sides}\n{rollout.outcome}: {rollout.ended.reason}"
    if not moves:
        return f"rollout {rollout.id}\n{sides}\nnot begun: no controller has decided; start one: replyline rollout run"
    rule = moves[-1].state.rule
    share = "none" if rule is None else f"{100 * rule.share:.4g} %"
    last = next((note for note in reversed(rollout.judgements) if note.unix_ms >= moves[-1].unix_ms), None)
    due = f"one is due {plan.min_s:g} s after {when(moves[-1].unix_ms)}, by: replyline rollout run"
    why = f"{last.kind}: {last.reason} (since {when(last.unix_ms)})" if last else f"wait: no decision yet; {due}"
    if rollout.paused is not None:
        why = rollout.paused
    step = standings(plan, moves).step + 1
    return f"rollout {rollout.id}\n{sides}, step {step} of {len(plan.steps)}: {share} of the conversations\n{why}"


async def _controller(kafka: KafkaSettings) -> str:
    """Return in a line whether a controller is running."""
    try:
        lease = await lease_of(kafka, topic=kafka.topics.observations, group=GROUP)
    except BrokerUnavailable as error:
        return f"controller: not known: {error}"
    return _led(lease, wire_unix_ms())


def _led(lease: Lease | None, now_unix_ms: float) -> str:
    if lease is not None and lease.holds(now_unix_ms):
        return f"controller: {lease.said}, seen {max(0.0, now_unix_ms - lease.unix_ms) / 1_000:.0f} s ago"
    last = "" if lease is None else f" (the last, {lease.said}, was seen at {when(lease.unix_ms)})"
    return f"controller: no controller is running{last}; type: replyline rollout run"


def _named(registry: Registry, revision: Revision) -> str:
    added = registry.versions.get(revision)
    return abbreviated(revision) if added is None else f"{added.version.name} ({abbreviated(revision)})"
