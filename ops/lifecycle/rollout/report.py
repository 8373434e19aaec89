"""The page of a rollout: its evidence over the canary's answers, its shares over time, and every decision."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.lifecycle.rollout.controller import fold
from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.records import Rollout, decisions
from ops.lifecycle.rollout.tally import METRICS
from ops.measure.plot import Line, Plot
from ops.measure.report import Part
from ops.measure.report import report as page
from ops.operate.letters import when
from shared.kafka import LogReader, Record
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import BROADCAST_PARTITION

_MAX_RECORDS: Final = 1_000
_READ_MS: Final = 200
_POINTS: Final = 400
_LEAST_E: Final = 1e-4
_MOST_E: Final = 1e6
_SIDES: Final = ("canary", "control")


@dataclass(slots=True)
class Course:
    """The e-values as they came, by the number of the canary's answers; if they are many, every second one."""

    evidence: Evidence
    points: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    _every: int = 1

    def add(self, records: Sequence[Record]) -> None:
        for record in records:
            before = self.evidence.answered("canary")
            fold(self.evidence, [record])
            now = self.evidence.answered("canary")
            if now > before and now % self._every == 0:
                self.points.append((now, self.evidence.numbers()))
            if len(self.points) > _POINTS:
                self.points, self._every = self.points[::2], self._every * 2

    def line(self, name: str, key: str, colour: int) -> Line:
        points = [(float(at), min(_MOST_E, max(_LEAST_E, numbers[key]))) for at, numbers in self.points]
        return Line(name, points, colour=colour)


async def follow(kafka: KafkaSettings, rollout: Rollout) -> Course:
    """Read the rollout's observations again. Raises `BrokerUnavailable`."""
    course = Course(Evidence(rollout.plan))
    topic = kafka.topics.observations
    reader = LogReader(kafka, client_id="replyline-rollout-report", topic=topic, partition=BROADCAST_PARTITION)
    try:
        await reader.start()
        reader.seek(rollout.plan.offset)
        end = await reader.end()
        while await reader.next_offset() < end:
            course.add(await reader.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS))
    finally:
        await reader.stop()
    return course


def render(rollout: Rollout, course: Course) -> str:
    """Return the page."""
    plan, evidence = rollout.plan, course.evidence
    lead = f"Canary {plan.version} beside champion {plan.champion}, {'a comparison' if plan.ab else 'a rollout'}."
    state = rollout.outcome.replace("_", " ") if rollout.ended is not None else rollout.paused or rollout.judged
    headline = {
        "state": state,
        "canary answers": f"{evidence.answered('canary'):,}",
        "control answers": f"{evidence.answered('control'):,}",
        "e-value": f"{evidence.numbers()['e']:g}",
    }
    rows = [[when(each.unix_ms), each.what, each.author, each.why, each.numbers] for each in decisions(rollout)]
    parts = [
        Part(title="Evidence", text=_EVIDENCE, plots=_evidence_plots(course)),
        Part(title="Bad answers", text=_BAD, titles=_TITLES, rows=_bad_rows(evidence)),
        Part(title="Shares", plots=[_shares(rollout)] if rollout.moves else []),
        Part(title="Decisions", titles=("when", "what", "by", "why", "numbers"), rows=rows),
    ]
    return page(f"Rollout {rollout.id}", lead, parts, headline=headline)


_EVIDENCE: Final = (
    "An e-value of 1 is no evidence; at the dashed line the canary is rolled back. It may be looked at after each "
    "answer: the chance that a canary which is not worse by the margin ever reaches the line is at most alpha."
)
_BAD: Final = (
    "A conversation counts up to its first bad answer. The difference is canary less control, with bounds that hold "
    "at all times together."
)
_TITLES: Final = ("metric", "canary", "control", "difference from", "to", "e-value")


def _evidence_plots(course: Course) -> list[Plot]:
    if not course.points:
        return []
    limit = 1 / course.evidence.plan.alpha
    lines = [course.line("all", "e", 0)]
    lines += [course.line(metric, f"e_{metric}", at + 1) for at, metric in enumerate(METRICS)]
    return [
        Plot(
            title="e-value",
            x="answers of the canary",
            y="e-value",
            lines=lines,
            log_y=True,
            levels={f"rolled back at {limit:g}": limit},
        )
    ]


def _bad_rows(evidence: Evidence) -> list[list[str]]:
    rows, numbers = [], evidence.numbers()
    for metric in METRICS:
        tally = evidence.tallies[metric]
        low, high = tally.interval(evidence.plan.alpha)
        shares = [f"{tally.bad[side]} of {tally.answers[side]}" for side in _SIDES]
        rows.append([metric, *shares, f"{low:+.1%}", f"{high:+.1%}", f"{numbers[f'e_{metric}']:g}"])
    return rows


def _shares(rollout: Rollout) -> Plot:
    """Return the classes' shares over the minutes since the first move, as steps."""
    moves, first = rollout.moves[: rollout.num_moves], rollout.moves[0].unix_ms
    last = max([move.unix_ms for move in moves] + [note.unix_ms for note in rollout.notes])
    lines = []
    for at, bucket in enumerate(rollout.plan.classes):
        points: list[tuple[float, float]] = []
        for move in moves:
            minute, rule = (move.unix_ms - first) / 60_000, move.state.rule
            share = 0.0 if rule is None or not rollout.rules(move.state) else 100 * rule.shares.get(bucket, 0.0)
            points += [(minute, points[-1][1]), (minute, share)] if points else [(minute, share)]
        points.append(((last - first) / 60_000, points[-1][1]))
        lines.append(Line(bucket, points, colour=at))
    return Plot(title="share of the conversations", x="minutes", y="percent", lines=lines)
