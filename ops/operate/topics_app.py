"""`replyline topics`: create, describe and grow Kafka's topics, and print the rights on them."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from ops.command_line import output, settings_of
from shared.errors import SettingsError
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.topics import reply_topic_allowed

topics_app = typer.Typer(
    help="Create, describe or grow the Kafka topics; print the rights on them.",
    no_args_is_help=True,
)


@topics_app.command("create")
def create(
    reply_topics: Annotated[list[str] | None, typer.Argument(help="additional reply topics, of other services")] = None,
    lane: Annotated[Lane, typer.Option(help="also create the topics of this lane")] = CHAMPION,
) -> None:
    """Create the missing topics. Exits with status 1 if an existing one has fewer partitions than the settings
    require."""
    from ops.operate.topics import create as create_missing

    settings = settings_of("topics")
    kafka = settings.kafka
    topics = kafka.topics.all(request_partitions=kafka.request_partitions, reply_partitions=kafka.reply_partitions)
    if lane != CHAMPION:
        topics |= kafka.topics.of_lane(lane, request_partitions=kafka.request_partitions)
    for name in reply_topics or []:
        if not reply_topic_allowed(name, settings.request_defaults.reply_topics):
            allowed = ",".join(kafka.reply_topics)
            raise SettingsError(f"{name}: not allowed by REPLYLINE_KAFKA__REPLY_TOPICS={allowed}; choose another")
        topics[name] = 1
    told = asyncio.run(create_missing(kafka, topics, max_deadline_ms=settings.promise.max_deadline_ms))
    _show_topics(told.lines, told.remedies)


@topics_app.command("describe")
def describe_() -> None:
    """List the topics with their partitions, and those that are missing or have too few; then the exit status is 1."""
    from ops.operate.topics import describe as describe_wanted

    kafka = settings_of("topics").kafka
    wanted = kafka.topics.all(request_partitions=kafka.request_partitions, reply_partitions=kafka.reply_partitions)
    told = asyncio.run(describe_wanted(kafka, wanted))
    _show_topics(told.lines, told.remedies)


@topics_app.command("grow")
def grow(
    partitions: Annotated[int, typer.Option(min=1, max=1_000, help="partitions of each request topic, in every lane")],
) -> None:
    """Increase the partitions of the request topics while the system is running, so that more workers can share them.

    A conversation with an open question stays on its partition; afterwards its key is hashed over all partitions. The
    order of turns is kept.
    """
    from ops.operate.topics import grow as give_more

    for line in asyncio.run(give_more(settings_of("topics").kafka, partitions)):
        output().print(line)
    told = f"set REPLYLINE_KAFKA__REQUEST_PARTITIONS={partitions}: topics of new lanes are created with it"
    Console(stderr=True).print(told, soft_wrap=True)


@topics_app.command("acls")
def acls(
    gateway_user: Annotated[str, typer.Option(help="the gateways' Kafka user")] = "gateway",
    worker_user: Annotated[str, typer.Option(help="the workers' Kafka user")] = "worker",
    operator_user: Annotated[
        str | None, typer.Option(help="user allowed to run `topics`, `dlq`, `handoffs` (default: none)")
    ] = None,
    recorder_user: Annotated[str | None, typer.Option(help="user allowed to run `record` (default: none)")] = None,
) -> None:
    """Print the kafka-acls.sh commands that grant each process the rights that it needs. Changes nothing."""
    from ops.operate.kafka_acls import Role, commands, rights

    settings = settings_of("topics")
    users: dict[Role, str] = {"gateway": gateway_user, "worker": worker_user}
    if operator_user is not None:
        users["operator"] = operator_user
    if recorder_user is not None:
        users["recorder"] = recorder_user
    for line in commands(rights(settings), users, settings.kafka.bootstrap_servers):
        sys.stdout.write(f"{line}\n")


def _show_topics(lines: Sequence[str], remedies: Sequence[str]) -> None:
    for line in lines:
        output().print(line)
    for remedy in remedies:  # not wrapped, so that they can be copied from a narrow terminal
        Console(stderr=True).print(remedy, soft_wrap=True)
    if remedies:
        raise typer.Exit(1)
