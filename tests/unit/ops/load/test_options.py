"""A wrong option of `replyline bench` is told before anything starts: one line a fault, exit status 2."""

import subprocess
import sys
from typing import Any, cast

import pytest

from ops.load.bench import LoadOptions, faq_questions
from shared.errors import SettingsError
from shared.wire.messages import Limits
from tests.bench.path import Asking, parse_rates


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--requests", "0"], "--requests 0"),
        (["--clients", "-1"], "--clients -1"),
        (["--rate", "0"], "--rate 0"),
        (["--rate", "nan"], "--rate nan"),
        (["--rate", "5", "--clients", "2"], "--rate and --clients"),
        (["--input-tokens", "5", "--mix", "short=1"], "--input-tokens and --mix"),
        (["--mix", "short=2"], "--mix short=2"),
        (["--json", "/nowhere/at/all.json"], "--json"),
        (["path", "--rates", "fast"], "--rates fast"),
        (["path", "--seconds", "0"], "--seconds 0"),
        (["stream", "--clients", "0"], "--clients 0"),
        (["gateway", "--start", "9", "--limit", "8"], "--start 9"),
        (["produce", "--records", "0"], "--records 0"),
        (["traffic", "sessions", "--rate", "0"], "--rate 0"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_two(arguments: list[str], named: str) -> None:
    """The line names the option and what was given."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", "bench", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("arguments", "named"), [(["--requests", "many"], "--requests"), (["nothing"], "nothing")])
def test_what_cannot_be_parsed_is_status_two(arguments: list[str], named: str) -> None:
    """The command line's own parser says what it did not understand."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", "bench", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert named in done.stderr


@pytest.mark.parametrize("text", ["", "a", "200,", "0", "-5", "inf"])
def test_rates_that_are_none_are_refused(text: str) -> None:
    """Each is a number above nothing."""
    with pytest.raises(SettingsError, match="--rates"):
        parse_rates(text)


def test_rates_are_comma_separated() -> None:
    """As many as are wanted."""
    assert parse_rates("200, 500") == [200.0, 500.0]


def test_a_time_in_which_nothing_is_asked_is_refused() -> None:
    """Nothing would be measured."""
    assert Asking(seconds=0.01, warmup_s=1, arrivals="even").counts(200) == (200, 2)
    with pytest.raises(SettingsError, match=r"--seconds 0.3: no request at --rates 1;"):
        Asking(seconds=0.3, warmup_s=0, arrivals="even").counts(1)


def asked(**given: Any) -> list[str]:
    """The texts of four questions, beside an FAQ of two."""
    options = dict.fromkeys(LoadOptions.__dataclass_fields__) | {"warmup": 1, "requests": 3, "seed": 0}
    told: dict[str, Any] = {**options, "max_output_tokens": 8, "deadline_ms": 1_000, **given}
    return [one.text for one in LoadOptions(**told).questions(cast("Limits", None), ["How?", "When?"])]


def test_a_load_asks_the_faqs_own_questions_unless_a_length_is_wished_for() -> None:
    """A shop's gateway knows nothing of a made-up text, so its model would never be asked."""
    assert asked() == ["How?", "When?", "How?", "When?"]
    assert [len(text.split()) for text in asked(input_tokens=5)] == [5] * 4
    assert [len(text.split()) for text in asked(mix="short=1")] == [24] * 4
    assert len(faq_questions(None)) > 20
