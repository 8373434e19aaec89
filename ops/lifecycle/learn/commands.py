"""`replyline learn`: from bad answers to corrections, from corrections to the FAQ and to an adapter."""

import asyncio
import getpass
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from ops.command_line import settings_of
from ops.lifecycle.learn.candidates import Candidate, Rated, candidates, named
from ops.lifecycle.learn.entries import add_lesson, faq_folder, remove_lessons
from ops.lifecycle.learn.lessons import Lesson, example_of, of_people, read_lessons, split
from ops.lifecycle.learn.personal import is_quoted, personal_data
from ops.lifecycle.learn.rated import rated_answers
from ops.lifecycle.versions.writer import read_registry
from ops.operate.letters import printable, when
from ops.operate.listing import say, show_table
from shared.errors import SettingsError
from shared.faq import detect_language
from shared.kafka import scan
from shared.nouns import counted
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.wire.codec import decode_erase
from shared.wire.session_key import SessionKey

learn_app = typer.Typer(help="Learn from bad answers: correct, add to the FAQ, train.", no_args_is_help=True)

_COLUMNS: Final = ("sources", "newest", "id", "revision", "reason", "question", "answer")
Tenant = Annotated[str | None, typer.Option(help="of the conversation")]
Session = Annotated[str | None, typer.Option(help="of the conversation, as `learn list` and the logs name it")]
Erased = Annotated[bool, typer.Option("--erased", help="of every conversation that chat.erasures names")]


@learn_app.command("list")
def list_() -> None:
    """Show the questions whose answers did not help, those of most customers first; of consenting customers only."""
    found, left_out = candidates(asyncio.run(_all(settings_of("learn"))))
    if not found:
        typer.echo("no answer was rated bad by a customer who consents to training")
        return
    show_table(_COLUMNS, [_row(candidate) for candidate in found], folds={"question", "answer"})
    if left_out:
        more = counted(left_out, "more comes", "more come")
        typer.echo(f"{more} from sources that are shown above already, and from nobody else")


@learn_app.command()
def confirm(
    name: Annotated[str, typer.Argument(metavar="ID", help="as `learn list` shows it, or how it begins")],
    answer: Annotated[str, typer.Option(help="the right answer")],
    question: Annotated[str | None, typer.Option(help="the question, in your words (none: a terminal asks)")] = None,
    by: Annotated[str | None, typer.Option(help="who confirms (none: this user)")] = None,
) -> None:
    """Write the right answer into the FAQ: it is in use within seconds, by the model and by the fallback."""
    settings = settings_of("learn")
    folder = faq_folder(settings.faq.path)
    raise typer.Exit(asyncio.run(_confirm(settings, folder, name, answer, question, by or getpass.getuser())))


@learn_app.command()
def export(
    out: Annotated[Path, typer.Option(help="folder to write: train.jsonl, judge.jsonl, people.txt")],
) -> None:
    """Write the confirmed corrections for `optimize distill --targets`; nobody's are both trained on and judged by."""
    learned, judged = split(read_lessons(faq_folder(settings_of("learn").faq.path)))
    if not learned:
        raise SettingsError("no correction to train on; confirm some: replyline learn list")
    out.mkdir(parents=True, exist_ok=True)
    for file, lessons in (("train.jsonl", learned), ("judge.jsonl", judged)):
        (out / file).write_bytes(b"".join(msgspec.json.encode(example_of(each)) + b"\n" for each in lessons))
    people = sorted({person for lesson in learned for person in lesson.people})
    (out / "people.txt").write_text("".join(f"{person}\n" for person in people))
    said_by = counted(len(people), "conversation")
    typer.echo(f"{len(learned)} to train on, {len(judged)} to judge by, of {said_by}: {out}")
    typer.echo(f"next: replyline optimize distill --targets {out / 'train.jsonl'} --out adapter")


@learn_app.command()
def person(tenant: Tenant = None, session: Session = None, erased: Erased = False) -> None:
    """Name the corrections and the versions that come from a conversation."""
    settings = settings_of("learn")
    people = asyncio.run(_people(settings, tenant, session, erased=erased))
    for lesson in of_people(_lessons(settings), people):
        typer.echo(f"correction {lesson.entry}: {lesson.question}")
    for line in asyncio.run(_versions(settings, people)):
        typer.echo(line)


@learn_app.command()
def forget(tenant: Tenant = None, session: Session = None, erased: Erased = False) -> None:
    """Remove the corrections that come from a conversation, and name the versions that were trained on it."""
    settings = settings_of("learn")
    folder = faq_folder(settings.faq.path)
    people = asyncio.run(_people(settings, tenant, session, erased=erased))
    gone, kept = remove_lessons(folder, lambda lesson: bool(of_people([lesson], people)))
    typer.echo(f"{counted(len(gone), 'correction')} removed, {len(kept)} kept")
    for line in asyncio.run(_versions(settings, people)):
        typer.echo(f"{line}; train it anew: replyline learn export")


async def _all(settings: Settings) -> list[Rated]:
    async with rated_answers(settings.redis) as answers:
        return await answers.all()


async def _confirm(settings: Settings, folder: Path, name: str, answer: str, question: str | None, by: str) -> int:
    now = now_unix_ms()
    async with rated_answers(settings.redis) as answers:
        found = named(candidates(await answers.all())[0], name) if name else []
        if len(found) != 1:
            return say(f"{name!r} names {len(found) or 'no'} questions; see: replyline learn list")
        question = question if question is not None else _asked_for(found[0])
        _check_wording(found[0], question, answer)
        lesson = _lesson(found[0], answer, question, by, now)
        add_lesson(folder, lesson)
        for rated in found[0].rated:
            await answers.remove(rated)
    typer.echo(f"{lesson.entry}: {lesson.question} → {lesson.answer}")
    return 0


def _asked_for(candidate: Candidate) -> str:
    """Show the customer's question and ask for another wording. Raises `SettingsError` where no terminal can."""
    if not sys.stdin.isatty():
        raise SettingsError("--question is missing: every customer can read it, so write it in your own words")
    typer.echo(f"a customer wrote: {printable(candidate.newest.bad.question)}")
    return str(typer.prompt("the question, in your own words"))


def _check_wording(candidate: Candidate, question: str, answer: str) -> None:
    """Refuse a text for every customer that has a customer's own words or personal data. Raises `SettingsError`."""
    written = [rated.bad.question for rated in candidate.rated]
    theirs = {each for text in written for each in personal_data(text)}
    found = {
        "--question": personal_data(question),
        "--answer": [each for each in personal_data(answer) if each in theirs],
    }
    for option, text in (("--question", question), ("--answer", answer)):
        if any(is_quoted(text, each) for each in written):
            raise SettingsError(
                f"{option} {text!r} has a customer's own sentence; every customer can read it: rephrase it"
            )
        if found[option]:
            raise SettingsError(
                f"{option} {text!r} has {', '.join(found[option])}; every customer can read it: leave it out"
            )


def _lesson(candidate: Candidate, answer: str, question: str, by: str, now_unix_ms: float) -> Lesson:
    bad = candidate.newest.bad
    return Lesson(
        entry=f"learned-{bad.response_id.removeprefix('resp_')[:12]}",
        language=detect_language(question),
        question=question,
        answer=answer,
        people=tuple(sorted({rated.session.digest for rated in candidate.rated})),
        by=by,
        confirmed_unix_ms=int(now_unix_ms),
        revision=bad.revision,
    )


async def _people(settings: Settings, tenant: str | None, session: str | None, *, erased: bool) -> set[str]:
    """Return the digests of the conversations that are meant. Raises `SettingsError` where none is."""
    if erased:
        records = scan(settings.kafka, settings.kafka.topics.erasures)
        erasures = [decode_erase(kept.record.value) async for kept in records]
        return {SessionKey(each.tenant, each.session_id).digest for each in erasures}
    if session is None:
        raise SettingsError("name a conversation by --session (and --tenant), or take --erased")
    return {SessionKey(tenant or settings.tenant, session).digest}


def _lessons(settings: Settings) -> Sequence[Lesson]:
    """Return the corrections; none where the FAQ is no folder that could hold them."""
    folder = settings.faq.path
    return read_lessons(folder) if folder is not None and folder.is_dir() else ()


async def _versions(settings: Settings, people: set[str]) -> list[str]:
    """Return a line for each version that was trained on one of these conversations."""
    registry = await read_registry(settings.kafka)
    return [
        f"version {name} ({added.version.name}) was trained on it"
        for name, added in registry.versions.items()
        if not people.isdisjoint(added.version.trained_on)
    ]


def _row(candidate: Candidate) -> list[str]:
    bad = candidate.newest.bad
    return [
        str(candidate.sources),
        when(bad.rated_unix_ms),
        bad.response_id,
        bad.revision or "",
        bad.reason or "",
        bad.question,
        bad.answer,
    ]
