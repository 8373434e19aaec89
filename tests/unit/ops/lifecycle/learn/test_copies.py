"""Erasures and withdrawn consents reach every copy: corrections, entries, exports and recordings."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner, Result

from ops.lifecycle.learn import commands, copies
from ops.lifecycle.learn.candidates import Rated, candidates
from ops.lifecycle.learn.copies import export, follow, read_forgotten, remove_forgotten
from ops.lifecycle.learn.entries import add_lesson
from ops.lifecycle.learn.lessons import Lesson, read_lessons
from ops.operate.recording.file import RecordingWriter, forget_in, read_recording
from shared.conversation.corrections import BadAnswer
from shared.errors import BrokerUnavailable, SettingsError
from shared.faq.entries import PACKAGED_PATH
from shared.kafka import Record, TimedRecord
from shared.settings.kafka import KafkaSettings
from shared.versions.registry import Registry
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Erase, Forgotten
from shared.wire.outcome import Message
from shared.wire.session_key import SessionKey
from tests.support.samples.recordings import HEADER, asked, written

SESSION = SessionKey("shop", "jane")
OTHER = SessionKey("shop", "ann")
CONFIRMED = 1_800_000_000_000
LATER, LONG_BEFORE = CONFIRMED + 60_000, CONFIRMED - 60_000
WORDS = "I am Jane: can you engrave spoons?"
QUESTION, ANSWER = "Can spoons be engraved?", "Yes, for $5."


class Log:
    """What Kafka's topics hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: dict[str, list[Message | bytes]] = {}
        self.is_shortened = False
        self.handed: list[tuple[str, int]] = []
        self.breaks_at: tuple[str, int] | None = None
        self.arrived_unix_ms: int | None = None
        monkeypatch.setattr(copies, "scan", self.scan)
        for module in (copies, commands):
            monkeypatch.setattr(module, "broken_promises", self.broken_promises)

    async def broken_promises(self, _: KafkaSettings) -> list[str]:
        return ["chat.forgotten has cleanup.policy=delete"] if self.is_shortened else []

    def add(self, topic: str, *messages: Message | bytes) -> None:
        self.records.setdefault(topic, []).extend(messages)

    async def scan(self, _: KafkaSettings, topic: str, *, offsets: dict[int, int]) -> AsyncIterator[TimedRecord]:
        for offset, message in enumerate(self.records.get(topic, ())):
            await asyncio.sleep(0)
            if self.breaks_at == (topic, offset):
                raise BrokerUnavailable("gone")
            value = message if isinstance(message, bytes) else msgpack_encode(message)
            if offset >= offsets.get(0, 0):
                self.handed.append((topic, offset))
                yield TimedRecord(Record(topic, 0, offset, None, value, arrived_unix_ms=self.arrived_unix_ms), 1)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


@pytest.fixture
def faq(tmp_path: Path) -> Path:
    folder = tmp_path / "faq"
    folder.mkdir()
    shutil.copy(PACKAGED_PATH, folder)
    add_lesson(folder, lesson("learned-jane", SESSION, QUESTION))
    for number in range(12):  # about one in eight is judged by
        add_lesson(folder, lesson(f"learned-{number}", SessionKey("shop", f"s{number}"), f"{number} or {number}?"))
    return folder


def lesson(entry: str, session: SessionKey, question: str) -> Lesson:
    return Lesson(
        entry=entry,
        language="en",
        question=question,
        answer=ANSWER,
        people=(session.digest,),
        by="ann",
        confirmed_unix_ms=CONFIRMED,
    )


def bad_answer(rated_unix_ms: int) -> BadAnswer:
    return BadAnswer(response_id="resp_77", question=WORDS, answer="No.", source="x", rated_unix_ms=rated_unix_ms)


def text_of(*folders: Path) -> str:
    return "".join(file.read_text() for folder in folders for file in folder.iterdir())


async def test_erasures_of_any_age_are_read_and_what_is_no_erasure_is_skipped(log: Log) -> None:
    later, earlier = (Erase(tenant="shop", session_id="jane", generation=each) for each in (7, 3))
    log.add("chat.erasures", later, b"\xc1", earlier)  # an edge repeats its own after the centre's
    log.add("chat.forgotten", Forgotten(person="p", unix_ms=9), Forgotten(person="p", unix_ms=8), b"\xc1")
    assert await read_forgotten(KafkaSettings()) == {SESSION.digest: 7, "p": 9}


async def test_what_is_read_on_is_read_once_whatever_clocks_say_and_nothing_is_missed_by_a_failure(log: Log) -> None:
    """Records carry the clock of the gateway that wrote them, which may be a day off."""
    places: dict[str, dict[int, int]] = {}
    log.add("chat.erasures", Erase(tenant="shop", session_id="jane", generation=7))
    assert await read_forgotten(KafkaSettings(), places) == {SESSION.digest: 7}
    log.add("chat.erasures", Erase(tenant="shop", session_id="ann", generation=5))
    log.add("chat.forgotten", Forgotten(person="p", unix_ms=9), Forgotten(person="q", unix_ms=1))
    log.breaks_at = ("chat.forgotten", 1)
    with pytest.raises(BrokerUnavailable):
        await read_forgotten(KafkaSettings(), places)
    log.breaks_at = None
    assert await read_forgotten(KafkaSettings(), places) == {OTHER.digest: 5, "p": 9, "q": 1}
    log.handed.clear()
    assert await read_forgotten(KafkaSettings(), places) == {}
    assert log.handed == []


@pytest.mark.parametrize(
    ("topic", "record"),
    [
        ("chat.erasures", Erase(tenant="shop", session_id="jane", generation=LONG_BEFORE)),
        ("chat.forgotten", Forgotten(person=SESSION.digest, unix_ms=LONG_BEFORE)),
    ],
    ids=["erased", "withdrawn"],
)
async def test_a_conversation_is_forgotten_up_to_the_records_arrival_by_the_brokers_clock(
    log: Log, faq: Path, topic: str, record: Message
) -> None:
    """The gateway's clock is a minute behind, so that its time is before the rating's."""
    log.add(topic, record)
    log.arrived_unix_ms = LATER
    remove_forgotten(faq, (), await read_forgotten(KafkaSettings()))
    assert QUESTION not in text_of(faq)


@pytest.mark.parametrize(("forgotten_unix_ms", "is_gone"), [(LATER, True), (CONFIRMED, True), (LONG_BEFORE, False)])
def test_a_forgotten_conversation_leaves_corrections_entries_and_exports(
    faq: Path, tmp_path: Path, forgotten_unix_ms: int, is_gone: bool
) -> None:
    """What was learned from a conversation after its erasure stays."""
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        export(faq, out)
        assert QUESTION in text_of(out)
    lines = remove_forgotten(faq, (), {SESSION.digest: forgotten_unix_ms})
    for folder in (faq, *outs):
        held = [file.name for file in folder.iterdir() if QUESTION in file.read_text()]
        assert bool(held) != is_gone, held
        assert any(str(folder) in line for line in lines) == is_gone
    assert len(read_lessons(faq)) == 13 - is_gone
    assert remove_forgotten(faq, (), {SESSION.digest: forgotten_unix_ms}) == []


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 0, 3_600_000], ids=["behind", "the same", "ahead"])
@pytest.mark.parametrize(("rated_unix_ms", "is_gone"), [(LATER - 1_000, True), (LATER + 60_000, False)])
def test_a_consent_withdrawn_after_the_rating_counts_whatever_the_operators_clock_says(
    faq: Path, ahead_ms: int, rated_unix_ms: int, is_gone: bool
) -> None:
    """Also if `confirm` has read the log before the withdrawal was written."""
    rated = [Rated(session=each, bad=bad_answer(rated_unix_ms)) for each in (OTHER, SESSION)]
    candidate = candidates(rated)[0][0]
    add_lesson(faq, commands._lesson(candidate, "Yes.", "May spoons have names?", "ann", LATER + 5_000 + ahead_ms))
    remove_forgotten(faq, (), {SESSION.digest: LATER})
    assert any(lesson.question == "May spoons have names?" for lesson in read_lessons(faq)) != is_gone


def test_an_export_that_was_away_is_trimmed_when_it_is_back(faq: Path, tmp_path: Path) -> None:
    out = tmp_path / "usb"
    export(faq, out)
    out.rename(tmp_path / "away")
    lines = remove_forgotten(faq, (), {SESSION.digest: LATER})
    assert any(f"{out}: this export is not here" in line for line in lines)
    (tmp_path / "away").rename(out)
    remove_forgotten(faq, (), {})
    assert QUESTION not in text_of(out)


OWN = b'{"question": "how long?", "answer": "30 days"}\n'
GROUNDED = b'{"question": "how long?", "grounding": [{"id": "returns", "question": "Returns?", "answer": "30 days"}]}\n'


@pytest.mark.parametrize("line", [OWN, GROUNDED, b"\n", b"# mine\n", b"\xff\n", b"[" * 100_000 + b"\n"])
def test_lines_that_a_person_has_added_to_an_export_stay_and_stop_no_erasure(
    faq: Path, tmp_path: Path, line: bytes
) -> None:
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        export(faq, out)
    file = outs[0] / "train.jsonl"
    file.write_bytes(line + file.read_bytes())
    told = remove_forgotten(faq, (), {SESSION.digest: LATER})
    assert QUESTION not in b"".join((out / "train.jsonl").read_bytes() for out in outs).decode(errors="replace")
    assert file.read_bytes().startswith(line)
    is_readable = line in (OWN, GROUNDED, b"\n")
    assert any(f"{file}, line 1 cannot be read" in each for each in told) != is_readable


# --- recordings


@pytest.mark.parametrize("broken", ["lessons", "export", "recording"])
def test_a_copy_that_cannot_be_changed_keeps_no_other_one_from_it(faq: Path, tmp_path: Path, broken: str) -> None:
    outs, recordings = [tmp_path / "one", tmp_path / "two"], [tmp_path / "a.replay", tmp_path / "b.replay"]
    for out, recording in zip(outs, recordings, strict=True):
        export(faq, out)
        written(recording, [asked(0.0, text=WORDS, person=SESSION.digest)])
    if broken == "export":
        (outs[0] / "train.jsonl").unlink()
        (outs[0] / "train.jsonl").mkdir()
    else:
        {"lessons": faq / "lessons.jsonl", "recording": recordings[0]}[broken].write_bytes(b"?")
    with pytest.raises(SettingsError):
        remove_forgotten(faq, recordings, {SESSION.digest: LATER})
    assert read_recording(recordings[1]).asked[0].text is None
    assert broken == "lessons" or QUESTION not in text_of(outs[1])


async def test_follow_tries_a_copy_that_cannot_be_changed_again(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_LOOK_INTERVAL_S", 0.0)
    stop, lines, path = asyncio.Event(), list[str](), tmp_path / "a.replay"
    path.write_bytes(b"?")
    forget_jane(log)

    def tell(line: str) -> None:
        lines.append(line)
        if len(lines) > 1:
            stop.set()
        else:
            path.unlink()
            written(path, [asked(0.0, text=WORDS, person=SESSION.digest)])

    await asyncio.wait_for(follow(KafkaSettings(), None, [path], tell, stop), 10)
    assert "trying again" in lines[0]
    assert lines[1:] == [f"{path}: 1 question removed"]


def test_what_a_full_disk_left_behind_stops_no_erasure(tmp_path: Path) -> None:
    path = tmp_path / "a.replay"
    written(path, [asked(0.0, text=WORDS, person=SESSION.digest)])
    (tmp_path / "a.replay.new.partial").write_bytes(b"half of it")
    assert forget_in(path, {SESSION.digest: HEADER.started_unix_ms + 30_000}) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["a.replay"]


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "still written"])
def test_a_recording_forgets_the_words_and_keeps_the_times(tmp_path: Path, ended: bool) -> None:
    path, started = tmp_path / "a.replay", HEADER.started_unix_ms
    entries = [
        asked(0.0, text=WORDS, stop=("Jane",), person=SESSION.digest),
        asked(90_000.0, text="asked after the erasure", person=SESSION.digest),
        asked(1.0, text="of another customer", person=OTHER.digest),
        asked(2.0),
    ]
    forgotten = {SESSION.digest: started + 30_000}
    if ended:
        written(path, entries)
        assert forget_in(path, forgotten) == 1
        assert forget_in(path, forgotten) == 0
    else:
        writer = RecordingWriter(path, HEADER)
        for entry in entries[:-1]:
            writer.write(entry)
        writer.forget(forgotten)
        writer.write(entries[-1])
        writer.finish()
    recording = read_recording(path)
    assert [each.text for each in recording.asked] == [None, "asked after the erasure", "of another customer", None]
    assert [each.at_ms for each in recording.asked] == [each.at_ms for each in entries]
    assert (recording.asked[0].stop, recording.asked[0].person, recording.broken_off) == ((), None, "")
    assert path.stat().st_mode & 0o77 == 0
    assert list(tmp_path.iterdir()) == [path]


# --- typed


class Typed:
    """`replyline learn`, with Kafka and Redis in memory."""

    def __init__(self, faq: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faq, self.log = faq, log
        self.kept: list[Rated] = []
        monkeypatch.setenv("REPLYLINE_FAQ__PATH", str(faq))
        monkeypatch.setattr(commands, "rated_answers", lambda _: self)
        monkeypatch.setattr(commands, "read_registry", self.registry)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def all(self, _: dict[str, int]) -> list[Rated]:
        return self.kept

    async def remove(self, rated: Rated) -> None:
        self.kept.remove(rated)

    async def registry(self, _: KafkaSettings) -> Registry:
        return Registry()

    def __call__(self, *words: Any) -> Result:
        return CliRunner().invoke(commands.learn_app, [str(word) for word in words])


@pytest.fixture
def learn(faq: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> Typed:
    typed = Typed(faq, log, monkeypatch)
    typed.kept.append(Rated(session=OTHER, bad=bad_answer(1)))
    return typed


def forget_jane(log: Log) -> None:
    log.add("chat.forgotten", Forgotten(person=SESSION.digest, unix_ms=LATER))


EACH_COMMAND: dict[str, Callable[[Path], tuple[Any, ...]]] = {
    "list": lambda _: (),
    "confirm": lambda _: ("resp_77", "--question", "Can forks be engraved?", "--answer", "Yes."),
    "export": lambda out: ("--out", out),
    "person": lambda _: ("--tenant", "shop", "--session", "ann"),
    "forget": lambda _: ("--tenant", "shop", "--session", "ann"),
}


@pytest.mark.parametrize("command", [*EACH_COMMAND, "follow"])
def test_no_command_takes_a_mistyped_folder_for_an_faq_without_corrections(
    learn: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("REPLYLINE_FAQ__PATH", str(tmp_path / "mistyped"))
    written(tmp_path / "a.replay", [asked(0.0)])
    words = (tmp_path / "a.replay",) if command == "follow" else EACH_COMMAND[command](tmp_path / "out")
    result = learn(command, *words)
    assert isinstance(result.exception, SettingsError)
    assert "mistyped, which is not there, and corrections need a folder" in str(result.exception)


@pytest.mark.parametrize("command", EACH_COMMAND)
def test_each_command_applies_every_erasure_first(learn: Typed, tmp_path: Path, command: str) -> None:
    forget_jane(learn.log)
    result = learn(command, *EACH_COMMAND[command](tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "1 correction removed" in result.stderr
    assert QUESTION not in text_of(learn.faq)


@pytest.mark.parametrize("command", ["confirm", "export"])
def test_what_is_erased_after_a_command_has_read_the_log_is_not_kept(
    learn: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As while a person writes the question."""
    write, name = (
        (commands.add_lesson, "add_lesson") if command == "confirm" else (commands.write_export, "write_export")
    )

    def erased_before(*args: Any) -> None:
        learn.log.add("chat.forgotten", *(Forgotten(person=each.digest, unix_ms=LATER) for each in (SESSION, OTHER)))
        write(*args)

    monkeypatch.setattr(commands, name, erased_before)
    result = learn(command, *EACH_COMMAND[command](out := tmp_path / "out"))
    assert not {"forks", "spoons"} & set(text_of(learn.faq, *([out] if out.exists() else [])).split())
    assert result.exit_code == (2 if command == "confirm" else 0), result.output


@pytest.mark.parametrize("command", EACH_COMMAND)
def test_each_command_names_a_log_that_the_broker_shortens(learn: Typed, tmp_path: Path, command: str) -> None:
    learn.log.is_shortened = True
    result = learn(command, *EACH_COMMAND[command](tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "chat.forgotten has cleanup.policy=delete" in result.stderr


def test_a_run_is_typed(learn: Typed, tmp_path: Path) -> None:
    assert "resp_77" in learn("list").output
    refused = learn("confirm", "resp_77", "--answer", ANSWER)
    assert isinstance(refused.exception, SettingsError)
    assert "--question is missing" in str(refused.exception)
    confirmed = learn("confirm", "resp", "--question", "Can forks be engraved?", "--answer", ANSWER)
    assert confirmed.output == f"learned-77: Can forks be engraved? → {ANSWER}\n"
    assert "no answer was rated bad" in learn("list").output
    assert f"{tmp_path / 'out'}" in learn("export", "--out", tmp_path / "out").output
    assert "forks" in text_of(tmp_path / "out")
    of_ann = ("--tenant", "shop", "--session", "ann")
    assert learn("person", *of_ann).output == "correction learned-77: Can forks be engraved?\n"
    forgot = learn("forget", *of_ann)
    assert "1 correction removed" in forgot.output
    assert learn("person", *of_ann).output == "no correction and no version comes from that\n"
    assert "forks" not in text_of(learn.faq, tmp_path / "out")
    assert isinstance(learn("forget").exception, SettingsError)


def test_forget_takes_recordings(learn: Typed, tmp_path: Path) -> None:
    path = tmp_path / "a.replay"
    written(path, [asked(0.0, text=WORDS, person=SESSION.digest)])
    forget_jane(learn.log)
    assert f"{path}: 1 question removed" in learn("forget", path).output
    assert read_recording(path).asked[0].text is None
    assert isinstance(learn("forget", tmp_path / "missing").exception, SettingsError)


async def test_follow_applies_an_erasure_while_it_runs(log: Log, faq: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_LOOK_INTERVAL_S", 0.0)
    stop, lines = asyncio.Event(), list[str]()

    def tell(line: str) -> None:
        lines.append(line)
        stop.set()

    following = asyncio.create_task(follow(KafkaSettings(), faq, (), tell, stop))
    for _ in range(50):
        await asyncio.sleep(0)
    assert QUESTION in text_of(faq)
    forget_jane(log)
    await asyncio.wait_for(following, 10)
    assert lines == [f"{faq}: 1 correction removed"]
    assert QUESTION not in text_of(faq)
