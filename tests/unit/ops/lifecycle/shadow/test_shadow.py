"""A version's shadow answers are reported in figures; a recording is asked of two models with the same words before."""

from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

from ops.lifecycle.shadow.commands import _folder, _revision
from ops.lifecycle.shadow.replay import observed, question_of, replay, turns_before
from ops.lifecycle.shadow.report import figures, headline, page, rows
from ops.operate.recording.file import Header, RecordedRequest, RecordingWriter
from shared.errors import SettingsError, VersionError
from shared.settings import Settings
from shared.settings.worker import ModelSettings
from shared.versions.registry import Registry
from shared.versions.store import DOCUMENT, stored
from shared.wire.messages import Said
from shared.wire.outcome import Replaced, Source, Timings
from shared.wire.reports import Observation
from shared.wire.shadow import Comparison
from tests.support.builders.gateway import answer
from tests.support.builders.versions import write_version


def seen(**told: Any) -> Observation:
    compared = Comparison(
        **({"live_revision": "old", "equal": True, "same_chars": 1.0, "same_tokens": 1.0, "score": 1.0}
        | {"live_unfounded": 0, "unfounded": 0, "live_ttft_ms": 20.0, "live_total_ms": 90.0, "total_ms": 300.0} | told)
    )  # fmt: skip
    given: dict[str, Any] = {"response_id": "r", "conversation": "c", "lane": "shadow", "revision": "new", "epoch": 1}
    return Observation(**given, unix_ms=1, bucket="short", ttft_ms=60.0, compared=compared)


def late() -> Observation:
    given: dict[str, Any] = {"response_id": "r", "conversation": "c", "lane": "shadow", "revision": "new", "epoch": 1}
    return Observation(**given, unix_ms=1, bucket="short", missed=True)


def test_a_version_is_named_as_in_every_other_command(tmp_path: Path) -> None:
    version, settings = write_version(tmp_path), Settings(model=ModelSettings(versions_dir=tmp_path))
    (tmp_path / "no-version").mkdir()
    (tmp_path / "no-version" / DOCUMENT).write_text("[]")
    for name in (version.id, version.id[:12], version.id[:6], version.name):
        assert _folder(settings, name) == tmp_path / version.id
        assert _revision(stored(settings.model), name) == version.id
    assert _folder(settings, str(tmp_path)) == tmp_path, "a model's folder"
    assert _revision(Registry(), "4afeb3989e7c") == "4afeb3989e7c", "a model without a version"
    for name in (version.id[:5], "*"):
        with pytest.raises(VersionError, match="not in this store"):
            _folder(settings, name)


def test_figures_count_what_is_equal_unfounded_and_unanswered() -> None:
    other = seen(equal=False, same_chars=0.25, same_tokens=0.5, score=0.75, live_unfounded=1, unfounded=3)
    found = figures("new", [seen(), other, seen(), late()])
    assert (found.compared, found.equal, found.unanswered, found.live_revisions) == (3, 2, 1, ("old",))
    assert (found.live_unfounded, found.unfounded) == (1, 3)
    table = {row[0]: row[1:] for row in rows(found)}
    assert table["characters from the first difference on"] == [0.0, 0.75, 0.75]
    assert table["tokens from the first difference on"] == [0.0, 0.5, 0.5]
    assert table["1 - score"] == [0.0, 0.25, 0.25]
    assert table["first text live, ms"] == [20.0] * 3
    assert table["first text of the shadow, ms"] == [60.0] * 3
    assert headline(found)["equal"] == "66.7%"


def test_the_page_draws_what_was_compared_and_says_so_where_nothing_was() -> None:
    assert "<svg" in page(figures("new", [seen()]), [seen()])
    of_none = figures("new", [late()])
    assert headline(of_none)["equal"] == "–"
    assert "<svg" not in page(of_none, [late()])


def asked(session: str, text: str | None, **fields: Any) -> RecordedRequest:
    given: dict[str, Any] = {"at_ms": 5.0, "bucket": "short", "tenant": "t", "input_tokens": 3, "max_output_tokens": 9}
    return RecordedRequest(**(given | {"first_token_ms": 100, "deadline_ms": 200} | fields), session=session, text=text)


def test_a_question_is_asked_with_its_own_conversation_and_a_seed() -> None:
    questions = [asked("a", "One?"), asked("b", "Two?"), asked("a", "Three?", temperature=0.5, stop=("!",))]
    turns = turns_before(questions, [answer(text="1."), answer(text="2.")], 2)
    assert turns == (Said(user="One?", assistant="1."),)
    question = question_of(questions[2], 2, turns)
    assert (question.input, question.turns, question.seed, question.temperature) == ("Three?", turns, 2, 0.5)
    assert (question.stop, question.max_output_tokens) == (("!",), 9)
    assert (question.deadline_ms or 0) > 200, "its words are compared, not its time"


def test_two_answers_are_compared_as_a_shadows() -> None:
    live = answer("live", "It takes 3 days.", revision="old", timings=Timings(ttft_ms=10.0, total_ms=20.0))
    cut = (Replaced(offset=0, length=1),)
    given = answer(
        "own", "It takes 4 days.", revision="new", timings=Timings(ttft_ms=11.0, total_ms=22.0), replaced=cut
    )
    made = observed(asked("a", "Is it 3 days?"), live, given, lambda text: list(text.encode()))
    assert (made.lane, made.revision, made.ttft_ms) == ("shadow", "new", 11.0)
    told = made.compared
    assert told is not None
    assert (told.live_revision, told.equal, told.same_chars) == ("old", False, 9 / 16)
    assert (told.live_unfounded, told.unfounded, told.total_ms) == (0, 2, 22.0)
    silent = observed(asked("a", "Hm?"), live, answer("own", ""), lambda text: list(text.encode()))
    assert silent.compared is None


@pytest.mark.parametrize("source", get_args(Source))
def test_an_answer_that_claims_nothing_counts_as_unsure(source: Source) -> None:
    one, live, own = asked("a", "Hm?"), answer("live", "Hello."), answer("own", "Hello.", source=source)
    made = observed(one, live, own, lambda text: list(text.encode()))
    assert made.unsure == (source in {"quote", "unsure"})


async def test_a_recording_without_texts_is_refused(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r.gz", Header(version=1, started_unix_ms=1, tokenizer="bytes", topics=()))
    writer.write(asked("a", None))
    writer.finish()
    with pytest.raises(SettingsError, match=r"r\.gz: holds no text; record customers who consent"):
        await replay(tmp_path / "r.gz", tmp_path, tmp_path, Settings(), Console())
