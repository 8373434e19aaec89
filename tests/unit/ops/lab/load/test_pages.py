"""Load reports: one self-contained file, understandable without the program, and not broken by any text."""

import random
import re
from collections import Counter
from html.parser import HTMLParser
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from ops.lab.client.outcome import Outcome
from ops.lab.load.figures.groups import reports
from ops.lab.load.figures.report import LoadParameters, summarise
from ops.lab.load.figures.tries import Bounds, Try
from ops.lab.load.pages.knee import KneeFacts, knee_page
from ops.lab.load.pages.load import ENDS, LoadFacts, end_of, load_page
from ops.measure.environment import Environment
from ops.measure.plot import Line, Plot
from ops.measure.quantiles import Quantiles
from ops.measure.report import Part, report
from shared.wire.outcome import Source
from tests.unit.examples import examples

RATES = "Requests offered and answered a second, over time"
# What a file's name, a setting or an error's code may hold: anything that an argument of a command can.
ANY = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    ["</style><script>alert(1)</script>", "'\"><b>", "&amp;", "]]>", "\x00\x1b[31m", "\ud800", "<!--"]
)


SOURCES: tuple[Source, ...] = get_args(Source)
ENVIRONMENT = Environment(
    date="2026-11-22T01:02:03+00:00",
    cpu="A CPU @ 2 GHz",
    cores=2,
    load_1min=0.1,
    system="Linux 6",
    python="3.11.2",
    versions={"replyline": "0.1.0", "websockets": "15.0"},
    engine="onnx smollm2-135m",
    broker="Apache Kafka 3.9",
)


def outcomes_of(count: int, seed: int = 1) -> list[Outcome]:
    """Log-normal latencies, longer in the middle; one in ten not by the model, one in fifty refused."""
    draw = random.Random(seed)
    found = []
    at_s = 0.0
    for number in range(count):
        at_s += draw.expovariate(8.0 if number % 300 < 200 else 30.0)
        outcome = Outcome(scheduled_s=100.0 + at_s, deadline_ms=4_000)
        found.append(outcome)
        if number % 50 == 49:
            outcome.error = "rate_limited"
            continue
        ttft_s = draw.lognormvariate(-1.6, 0.5) * (3 if number % 300 >= 200 else 1)
        source = SOURCES[number // 10 % len(SOURCES)] if number % 10 == 0 else "model"
        outcome.sent_s, outcome.source, outcome.status, outcome.reason = 100.0 + at_s, source, "completed", "stop"
        outcome.first_s = outcome.sent_s + ttft_s
        outcome.done_s = outcome.last_s = outcome.first_s + draw.lognormvariate(0.2, 0.4)
        outcome.output_tokens = 40
    return found


def load_facts(**changed: object) -> LoadFacts:
    outcomes = outcomes_of(400)
    run = LoadParameters(
        command="replyline bench traffic promotion --rate 8",
        loop="open",
        clients=None,
        rate=8.0,
        arrivals="promotion",
        connections=31,
        warmup=0,
        seed=1,
        input="promotion",
        max_output_tokens=None,
        deadline_ms=None,
    )
    half = len(outcomes) // 2
    facts: dict[str, object] = {
        "title": "Traffic: promotion",
        "told": "Questions of a shop's customers at a promotion.",
        "outcomes": outcomes,
        "report": summarise(outcomes),
        "run": run,
        "environment": ENVIRONMENT,
        "grouped_by": "phase",
        "groups": reports({"at other times": outcomes[:half], "in the surge": outcomes[half:]}),
        "first_token_ms": 1_000.0,
        "deadline_ms": 4_000.0,
        "settings": {"worker": "8 slots"},
        "surges": [(outcomes[half].scheduled_s - 100.0, outcomes[-1].scheduled_s - 100.0)],
    }
    return LoadFacts(**(facts | changed))  # type: ignore[arg-type]


def knee_facts() -> KneeFacts:
    knee = 10.1

    def tried(rate: float) -> Try:
        over = rate > knee
        p99 = 180.0 + 25 * rate + (900 if over else 0)
        return Try(
            rate=rate,
            requests=round(rate * 20),
            ttft_ms=Quantiles(p50=p99 / 3, p95=p99 / 1.5, p99=p99),
            e2e_ms=Quantiles(p50=p99, p95=2 * p99, p99=3 * p99),
            in_time=0.9 if over else 0.99,
            errors=0,
            broken=[f"TTFT p99 {p99:.2f} ms"] if over else [],
        )

    return KneeFacts(
        rate=knee,
        at_limit=False,
        bounds=Bounds(ttft_p99_ms=500.0, e2e_p99_ms=None, goodput=0.95),
        tries=[tried(rate) for rate in (4.0, 6.0, 9.0, 13.5, 11.2, 10.1)],
        environment=ENVIRONMENT,
        asked={"command": "replyline bench knee", "seed": "0"},
    )


class Reader(HTMLParser):
    """Its text by element, and which elements stand open."""

    VOID = frozenset({"meta", "br", "circle", "path", "rect"})

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said: dict[str, list[str]] = {}
        self.tags: set[str] = set()
        self.labels: list[str] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.labels += [value or "" for name, value in attrs if name == "aria-label"]
        if tag not in self.VOID:
            self.open.append(tag)
            self.said.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.said[self.open[-1]][-1] += data


def read(document: str) -> Reader:
    """Every report: whole, alone, writable."""
    assert not re.search(r"https?:|//|<script|<link|@import|url\(", document.replace("<!doctype html>", ""))
    document.encode()
    reader = Reader(document)
    assert reader.open == []
    assert not reader.tags & {"script", "link", "img", "iframe", "object", "b2"}
    return reader


def shown(value: str) -> str:
    """As a browser may show it: controls and halves of characters become U+FFFD."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]", "\ufffd", value)


@settings(max_examples=examples(100))
@given(ANY, ANY)
def test_any_text_is_shown_as_it_is_wherever_it_stands(one: str, other: str) -> None:
    """In a title, a sentence, a figure's caption, a table's head and cell, a name and its value."""
    plot = Plot(title=one, x=other, y=one, lines=[Line(other, [(0.0, 1.0)])], levels={one: 1.0}, marks={other: 0.0})
    parts = [Part(title=other, text=one, plots=[plot], titles=(one, other), rows=[(other, one)], pairs={one: other})]
    document = report(one, other, parts, headline={one: other})
    reader = Reader(document)
    document.encode()
    assert reader.open == []
    a, b = shown(one), shown(other)
    assert (reader.said["h1"], reader.said["h2"]) == ([a], [b])
    assert reader.said.get("p", []) == [piece for piece in (b, a) if piece]
    assert reader.said["title"] == [f"Replyline: {a}"]
    assert (reader.said["td"], reader.said["th"]) == ([a], [a, b, b])
    assert (reader.said["dt"], reader.said["dd"], reader.said["b"]) == ([a], [b], [b])
    assert a in reader.said["figcaption"][0]
    assert {a, b} <= set(reader.said["text"])


def test_a_loads_report_says_what_was_asked_what_came_of_it_and_when() -> None:
    facts = load_facts()
    document = load_page(facts)
    reader = read(document)
    said = " ".join(piece for pieces in reader.said.values() for piece in pieces)
    for words in (
        facts.run.command, "a shop's customers at a promotion", "A CPU @ 2 GHz, 2 cores", "Apache Kafka 3.9",
        "replyline 0.1.0", f"{facts.report.goodput.share:.1%}", "rate_limited 8", "8 a second", "8 slots",
        "first text in 1000 ms, the whole answer in 4000 ms", "in the surge", "A surge is shaded",
    ):  # fmt: skip
        assert words in said, words
    assert reader.labels == [
        RATES,
        "TTFT of the model's answers over time",
        "end to end of the model's answers over time",
        "Distribution: time from when it was due",
    ]
    assert len(document) < 400_000


def test_every_request_is_counted_under_one_end() -> None:
    some = outcomes_of(400)
    found = Counter(map(end_of, some))
    report = summarise(some)
    assert found["no answer"] == report.errors.total
    good = found["model, in time"] + found["mixed, in time"]
    assert good == report.goodput.answers
    assert good + found["model, late or cut"] == report.by_source["model"] + report.by_source["mixed"]
    assert all(found[end] == report.by_source[end] for end in ("faq", "quote", "unsure", "busy", "handoff"))
    assert found.keys() == ENDS.keys()


def test_where_nobody_was_answered_the_report_has_no_plots_of_answers() -> None:
    """All refused: it says so, and draws what was offered."""
    some = [Outcome(scheduled_s=0.1 * n, deadline_ms=9, error="draining") for n in range(9)]
    report = summarise(some)
    reader = read(load_page(load_facts(outcomes=some, report=report, groups={"all": report}, surges=())))
    assert reader.labels == [RATES]
    assert "draining 9" in reader.said["dd"]


def test_the_knees_report_shows_the_way_of_the_search_and_the_bounds() -> None:
    reader = read(knee_page(knee_facts()))
    said = " ".join(piece for pieces in reader.said.values() for piece in pieces)
    assert "TTFT p99 within 500 ms" in said
    assert "knee: 10.1" in said
    assert reader.said["td"].count("within bounds") == 4
    assert reader.labels == [
        "TTFT p99, ms, against the rate",
        "end to end p99, ms, against the rate",
        "share in time, against the rate",
    ]
