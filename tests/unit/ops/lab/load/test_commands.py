"""An invalid option of `replyline bench` is reported before anything starts: one line, exit status 2."""

import sys

import pytest

from ops import cli
from ops.lab.load.bench import faq_questions, texts_of
from shared.errors import SettingsError
from tests.bench.path import Asking


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--requests", "0"], "--requests 0: "),
        (["--rate", "nan"], "--rate nan"),
        (["--rate", "5", "--clients", "2"], "--rate and --clients"),
        (["--input-tokens", "5", "--mix", "short=1"], "--input-tokens and --mix"),
        (["--mix", "short=2"], "--mix short=2"),
        (["--json", "/nowhere/at/all.json"], "--json /nowhere/at/all.json: /nowhere/at is not a directory"),
        (["nothing"], "nothing"),
        (["path", "--rates", "fast"], "--rates fast"),
        (["gateway", "--start", "9", "--limit", "8"], "--start 9"),
        (["traffic", "surge", "--rate", "nan"], "--rate nan"),
        (["traffic", "crowds", "--rate", "1"], "crowds: unknown traffic; use one of poisson, "),
        (["traffic", "surge", "--rate", "1e5", "--seconds", "1e3"], "--rate 100000 for 1000 s: may be more than"),
        (["knee", "--limit", "1"], "--limit 1: must be 2 (--start) or more"),
        (["knee", "--goodput", "2"], "--goodput 2: "),
        (["knee", "--html", "/nowhere/a.html"], "--html /nowhere/a.html: /nowhere is not a directory; create it first"),
        (["compare", "a.json", "b.json", "--tolerance", "5"], "--tolerance 5: "),
    ],
)
def test_a_wrong_option_is_one_line_and_status_two(
    arguments: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the option and what was given."""
    monkeypatch.setattr(sys, "argv", ["replyline", "bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    line = capsys.readouterr().err
    assert (ended.value.code, line.count("\n")) == (2, 1)
    assert named in line


def test_a_time_in_which_nothing_is_asked_is_refused() -> None:
    """Nothing would be measured."""
    assert Asking(seconds=0.01, warmup_s=1, arrivals="even").counts(200) == (200, 2)
    with pytest.raises(SettingsError, match=r"--seconds 0.3: no request at --rates 1;"):
        Asking(seconds=0.3, warmup_s=0, arrivals="even").counts(1)


def test_a_load_asks_the_faqs_own_questions_unless_a_length_is_wished_for() -> None:
    """A shop's gateway knows nothing of a made-up text, so its model would never be asked."""
    faq = ["How?", "When?"]
    assert texts_of(4, 0, faq, mix=None) == ["How?", "When?", "How?", "When?"]
    assert texts_of(3, 1, faq, mix=None) == ["When?", "How?", "When?"]
    assert [len(text.split()) for text in texts_of(4, 0, faq, mix=None, input_tokens=5)] == [5] * 4
    assert [len(text.split()) for text in texts_of(4, 0, faq, mix="short=1")] == [24] * 4
    assert len(faq_questions(None)) > 20
