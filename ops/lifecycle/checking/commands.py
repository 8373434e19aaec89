"""`replyline versions check`: examine a version before its first customer."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from ops.command_line import settings_of
from ops.lifecycle.checking.check import Scope, check
from ops.lifecycle.versions import moves
from ops.lifecycle.versions.commands import Author, Name
from ops.lifecycle.versions.writer import RegistryWriter
from ops.operate.listing import say
from ops.paths import FILE_TO_READ, PATH_TO_READ
from shared.settings import Settings


def check_version(
    name: Name,
    quick: Annotated[bool, typer.Option("--quick", help="ask a sample of the questions")] = False,
    questions: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=FILE_TO_READ, help="others than the named set")
    ] = None,
    faq: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=PATH_TO_READ, help="what they are about (default: as set)")
    ] = None,
    author: Author = None,
) -> None:
    """Examine a version on this machine: files, signature, base, golden prompts, evaluation and guard questions.
    Exit status 1 if it fails."""
    scope = Scope(quick=quick, questions=questions, faq=faq)
    raise typer.Exit(asyncio.run(_check(settings_of("versions"), name, scope, author)))


async def _check(settings: Settings, name: str, scope: Scope, author: str | None) -> int:
    async with RegistryWriter.opened(settings.kafka, author) as writer:
        version = moves.found(writer.registry, name)
        checked = await check(settings, writer.registry, version, scope, author=writer.author)
        await writer.write(checked)
    for figure, value in checked.numbers.items():
        _print(f"{figure}: {value:g}")
    if checked.failures:
        return max(say(f"{version.id} failed: {failure}") for failure in checked.failures)
    why_not = writer.registry.why_not(version.id)
    _print(f"{version.id} passed; next: replyline versions use {version.id}" if why_not is None else why_not)
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
