"""`replyline learn`: from bad answers to corrections, from corrections to the FAQ and to an adapter."""

import asyncio
import getpass
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ops.command_line import settings_of
from ops.lifecycle.learn.candidates import Candidate, Rated, candidates, named
from ops.lifecycle.learn.copies import broken_promises, read_forgotten, remove_forgotten
from ops.lifecycle.learn.copies import export as write_export
from ops.lifecycle.learn.copies import follow as follow_forgotten
from ops.lifecycle.learn.entries import add_lesson, faq_folder
from ops.lifecycle.learn.lessons import LEARNED, Lesson, of_people, people_of, read_lessons, split
from ops.lifecycle.learn.personal import is_quoted, personal_data
from ops.lifecycle.learn.rated import rated_answers
from ops.lifecycle.versions.writer import read_registry
from ops.operate.letters import printable, when
from ops.operate.listing import show_table, unknown
from ops.operate.recording.file import read_recording
from ops.paths import FILE_TO_READ, FOLDER_TO_WRITE
from shared.errors import SettingsError
from shared.faq import detect_language
from shared.nouns import counted
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.wire.session_key import SessionKey

learn_app = typer.Typer(help="Learn from bad answers: correct, add to the FAQ, train.", no_args_is_help=True)

_COLUMNS: Final = ("sources", "newest", "id", "revision", "reason", "question", "answer")
Tenant = Annotated[str | None, typer.Option(help="of the conversation")]
Session = Annotated[str | None, typer.Option(help="of the conversation, as `learn list` and the logs name it")]
Erased = Annotated[bool, typer.Option("--erased", help="of every conversation that was erased or withdrew its consent")]
Recordings = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[RECORDING]...", callback=FILE_TO_READ, help="of `replyline record`, to remove it from"),
]


@learn_app.command("list")
def list_() -> None:
    """Show the questions whose answers did not help, those of most customers first; of consenting customers only."""
    settings = settings_of("learn")
    found, left_out = candidates(asyncio.run(_all(settings)))
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
    out: Annotated[
        Path, typer.Option(callback=FOLDER_TO_WRITE, help="folder to write: train.jsonl, judge.jsonl, people.txt")
    ],
) -> None:
    """Write the confirmed corrections for `optimize distill --targets`, each customer's in one half of them."""
    settings = settings_of("learn")
    faq = faq_folder(settings.faq.path)
    asyncio.run(_forgotten(settings))
    write_export(faq, out)
    asyncio.run(_forgotten(settings))  # what was erased since the log was read
    learned, judged = split(read_lessons(faq))
    said_by = counted(len(people_of(learned)), "conversation")
    typer.echo(f"{len(learned)} to train on, {len(judged)} to judge by, of {said_by}: {out}")
    typer.echo(f"next: replyline optimize distill --targets {out / 'train.jsonl'} --out adapter")


@learn_app.command()
def person(tenant: Tenant = None, session: Session = None, erased: Erased = False) -> None:
    """Name the corrections and the versions that come from a conversation."""
    settings = settings_of("learn")
    people = asyncio.run(_people(settings, tenant, session, erased=erased))
    lessons = of_people(_lessons(settings), people)
    lines = [
        *(f"correction {each.entry}: {each.question}" for each in lessons),
        *asyncio.run(_versions(settings, people)),
    ]
    typer.echo("\n".join(lines) or "no correction and no version comes from that")


@learn_app.command()
def forget(
    recordings: Recordings = None, tenant: Tenant = None, session: Session = None, erased: Erased = False
) -> None:
    """Remove a conversation from corrections, their exports and recordings, and name the versions trained on it."""
    settings = settings_of("learn")
    people = asyncio.run(_people(settings, tenant, session, erased=erased or bool(recordings)))
    for line in remove_forgotten(_faq(settings), recordings or [], people):
        typer.echo(line)
    typer.echo(f"{counted(len(_lessons(settings)), 'correction')} kept")
    for line in asyncio.run(_versions(settings, people)):
        typer.echo(f"{line}; train it again: replyline learn export")


@learn_app.command()
def follow(recordings: Recordings = None) -> None:
    """Remove conversations within seconds of their erasure or withdrawn consent, until Ctrl-C; as `forget` does."""
    from shared.process.lifetime import run_until_signal

    settings = settings_of("learn")
    faq = _faq(settings)
    followed = [*([] if faq is None else [f"the corrections in {faq}"]), *map(str, recordings or ())]
    if not followed:
        raise SettingsError("nothing to remove from: set REPLYLINE_FAQ__PATH to a folder, or name a recording")
    for path in recordings or ():
        read_recording(path)  # else a file of another kind would be tried again for ever
    typer.echo(f"follows erasures for {', '.join(followed)}")
    raise typer.Exit(
        run_until_signal(lambda stop: follow_forgotten(settings.kafka, faq, recordings or [], typer.echo, stop))
    )


async def _all(settings: Settings) -> list[Rated]:
    forgotten = await _forgotten(settings)
    async with rated_answers(settings.redis) as answers:
        return await answers.all(forgotten)


async def _forgotten(settings: Settings) -> dict[str, int]:
    """Apply every erasure and withdrawn consent, and return them. Raises `BrokerUnavailable`, `SettingsError`."""
    forgotten = await read_forgotten(settings.kafka)
    for line in [*await broken_promises(settings.kafka), *remove_forgotten(_faq(settings), (), forgotten)]:
        typer.echo(line, err=True)
    return forgotten


async def _confirm(settings: Settings, folder: Path, name: str, answer: str, question: str | None, by: str) -> int:
    now = now_unix_ms()
    forgotten = await _forgotten(settings)
    async with rated_answers(settings.redis) as answers:
        found = named(candidates(await answers.all(forgotten))[0], name) if name else []
        if len(found) != 1:
            return unknown(f"{name!r} names {len(found) or 'no'} questions; see: replyline learn list")
        question = question if question is not None else _asked_for(found[0])
        _check_wording(found[0], question, answer)
        lesson = _lesson(found[0], answer, question, by, now)
        add_lesson(folder, lesson)
        for rated in found[0].rated:
            await answers.remove(rated)
    await _forgotten(settings)  # what was erased since the log was read, as while a person wrote the question
    if lesson.entry not in {each.entry for each in read_lessons(folder)}:
        return unknown(f"{lesson.entry}: its conversation was erased or withdrew its consent; nothing is kept")
    typer.echo(f"{lesson.entry}: {lesson.question} → {lesson.answer}")
    return 0


def _asked_for(candidate: Candidate) -> str:
    """Show the customer's question and ask for another wording. Raises `SettingsError` without a terminal."""
    if not sys.stdin.isatty():
        raise SettingsError("--question is missing: every customer can read it, so write it in your own words")
    typer.echo(f"a customer wrote: {printable(candidate.newest.bad.question)}")
    return str(typer.prompt("the question, in your own words"))


def _check_wording(candidate: Candidate, question: str, answer: str) -> None:
    """Refuse a text for every customer that has a customer's own words or personal data. Raises `SettingsError`."""
    written = [rated.bad.question for rated in candidate.rated]
    theirs = {each for text in written for each in personal_data(text)}
    of_answer = [each for each in personal_data(answer) if each in theirs]
    for option, text, personal in (("--question", question, personal_data(question)), ("--answer", answer, of_answer)):
        found = ["a customer's own sentence"] if any(is_quoted(text, each) for each in written) else personal
        if found:
            raise SettingsError(f"{option} {text!r} has {', '.join(found)}; every customer can read it: rephrase it")


def _lesson(candidate: Candidate, answer: str, question: str, by: str, now_unix_ms: float) -> Lesson:
    bad, rated = candidate.newest.bad, dict[str, int]()
    for each in candidate.rated:  # newest first
        rated[each.session.digest] = each.bad.rated_unix_ms
    return Lesson(
        entry=f"{LEARNED}{bad.response_id.removeprefix('resp_')[:12]}",
        language=detect_language(question),
        question=question,
        answer=answer,
        people=tuple(sorted(rated)),
        rated=rated,
        by=by,
        confirmed_unix_ms=int(now_unix_ms),
        revision=bad.revision,
    )


async def _people(settings: Settings, tenant: str | None, session: str | None, *, erased: bool) -> dict[str, int]:
    """Return the conversations that the options name: digest → Unix ms until which all of it goes. Raises
    `SettingsError` if they name none."""
    forgotten = await _forgotten(settings)
    if session is None and not erased:
        raise SettingsError("name a conversation by --session (and --tenant), or take --erased")
    named = {} if session is None else {SessionKey(tenant or settings.tenant, session).digest: int(now_unix_ms())}
    return (forgotten if erased else {}) | named


def _faq(settings: Settings) -> Path | None:
    """Return the FAQ's folder; None if the FAQ is a file, which has no corrections. Raises `SettingsError` if its path
    leads nowhere."""
    path = settings.faq.path
    return None if path is None or path.is_file() else faq_folder(path)


def _lessons(settings: Settings) -> Sequence[Lesson]:
    folder = _faq(settings)
    return () if folder is None else read_lessons(folder)


async def _versions(settings: Settings, people: Collection[str]) -> list[str]:
    """Return a line for each version that was trained on one of these conversations."""
    registry = await read_registry(settings.kafka)
    return [
        f"version {name} ({added.version.name}) was trained on it"
        for name, added in registry.versions.items()
        if not set(people).isdisjoint(added.version.trained_on)
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
