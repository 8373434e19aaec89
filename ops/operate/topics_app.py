"""`replyline topics`: Kafka's topics, made, looked at and grown, and the rights on them."""

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
    reply_topics: Annotated[list[str] | None, typer.Argument(help="further reply topics, of other services")] = None,
    lane: Annotated[Lane, typer.Option(help="the topics of this lane, too")] = CHAMPION,
) -> None:
    """Create the topics that are missing. Status 1 where one is there with fewer partitions than the settings want."""
    from ops.operate.topics import create as create_missing

    settings = settings_of("topics")
    kafka = settings.kafka
    topics = kafka.topics.all(request_partitions=kafka.request_partitions, reply_partitions=kafka.reply_partitions)
    if lane != CHAMPION:
        topics |= kafka.topics.of_lane(lane, request_partitions=kafka.request_partitions)
    for name in reply_topics or []:
        if not reply_topic_allowed(name, settings.request_defaults.reply_topics):
            allowed = ",".join(kafka.reply_topics)
            raise SettingsError(f"{name}: not a reply topic by REPLYLINE_KAFKA__REPLY_TOPICS={allowed}; choose another")
        topics[name] = 1
    told = asyncio.run(create_missing(kafka, topics, max_deadline_ms=settings.promise.max_deadline_ms))
    _show_topics(told.lines, told.remedies)


@topics_app.command("describe")
def describe_() -> None:
    """Say which topics there are, with how many partitions, and which are missing or have too few: then status 1."""
    from ops.operate.topics import describe as describe_wanted

    kafka = settings_of("topics").kafka
    wanted = kafka.topics.all(request_partitions=kafka.request_partitions, reply_partitions=kafka.reply_partitions)
    told = asyncio.run(describe_wanted(kafka, wanted))
    _show_topics(told.lines, told.remedies)


@topics_app.command("grow")
def grow(
    partitions: Annotated[int, typer.Option(min=1, max=1_000, help="of each request topic, of every lane")],
) -> None:
    """Give the request topics more partitions, so that more workers can share them, while people chat.

    A conversation with an open question stays in its partition; then its key chooses among all. No turn overtakes
    another."""
    from ops.operate.topics import grow as give_more

    for line in asyncio.run(give_more(settings_of("topics").kafka, partitions)):
        output().print(line)
    told = f"set REPLYLINE_KAFKA__REQUEST_PARTITIONS={partitions}: topics of lanes that come later are made by it"
    Console(stderr=True).print(told, soft_wrap=True)


@topics_app.command("acls")
def acls(
    gateway_user: Annotated[str, typer.Option(help="who the gateways are to Kafka")] = "gateway",
    worker_user: Annotated[str, typer.Option(help="who the workers are")] = "worker",
    operator_user: Annotated[
        str | None, typer.Option(help="who may type `topics`, `dlq`, `handoffs` (none: no one)")
    ] = None,
    recorder_user: Annotated[str | None, typer.Option(help="who may type `record` (none: no one)")] = None,
) -> None:
    """Print the kafka-acls.sh commands that let each process do its work, and no more. Nothing is changed."""
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
    for remedy in remedies:  # whole, to be copied from a narrow terminal too
        Console(stderr=True).print(remedy, soft_wrap=True)
    if remedies:
        raise typer.Exit(1)
