"""The learned window: the bandit finds what pays, its table is safe to follow, and training repeats itself."""

import math
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.simulate.experiment import Experiment
from ops.simulate.held_out import choices, compare, trials_table, verdict
from ops.simulate.learn import Course, Machine, train, worth
from ops.simulate.simulator import Ending, Outcome
from ops.traces.costs import CPU
from ops.traces.trace import Request
from shared.settings import Settings
from workers.schedule.bandit import SHARES, Arm, Bandit, BanditTable, _best, cell_of, learned, read_table
from workers.schedule.window import Opening

CELL = "busy-2-0-2"
OPENINGS = st.builds(
    Opening,
    opened_unix_ms=st.just(0.0),
    bound_ms=st.floats(0.1, 1_000),
    gap_ms=st.one_of(st.floats(0, 1e6), st.just(math.inf)),
    rows=st.integers(1, 1_000),
    slack_ms=st.floats(-1e6, 1e6),
    busy=st.booleans(),
)


def play(bandit: Bandit, means: tuple[float, ...], rounds: int, random: Random) -> list[int]:
    """Rewards around the actions' means, each told after its choice."""
    chosen: list[int] = []
    for _ in range(rounds):
        action = bandit.choose(CELL)
        bandit.learn(CELL, action, random.gauss(means[action], 0.1))
        chosen.append(action)
    return chosen


def opening(cell: str) -> Opening:
    """One of the cell `busy-2-0-2`, or of one that nobody has seen."""
    return Opening(opened_unix_ms=0.0, bound_ms=10.0, gap_ms=9.0, rows=1, slack_ms=1_000.0, busy=cell == CELL)


@pytest.mark.parametrize("best", range(len(SHARES)))
def test_it_comes_to_choose_what_pays_best(best: int) -> None:
    """Each action by turns the best: chosen in nine of ten of the last rounds, and what the table says."""
    means = tuple(0.2 if action == best else 0.0 for action in range(len(SHARES)))
    bandit = Bandit(0.2)
    chosen = play(bandit, means, 2_000, Random(best))
    assert chosen[-1_000:].count(best) >= 900
    assert cell_of(opening(CELL)) == CELL
    assert learned(bandit.table("a game"))(opening(CELL)) == SHARES[best]


@pytest.mark.parametrize("rounds", [60, 300, 2_000])
def test_no_window_is_tried_as_often_as_any_until_that_is_enough(rounds: int) -> None:
    """However badly it pays: what a window is compared with must be known as well."""
    bandit = Bandit(0.2)
    chosen = play(bandit, (-1.0, 0.0, 0.2, 0.0, 0.0), rounds, Random(3))
    assert chosen.count(0) >= min(50, max(map(chosen.count, range(len(SHARES)))) - 1)


def test_choices_without_a_reward_yet_are_spread() -> None:
    """Each action is tried before one is tried twice."""
    bandit = Bandit(1.0)
    assert sorted(bandit.choose(CELL) for _ in SHARES) == list(range(len(SHARES)))


def test_the_same_rewards_give_the_same_table() -> None:
    """To the last digit."""
    tables = []
    for _ in range(2):
        bandit = Bandit(0.1)
        play(bandit, (0.0, 0.1, 0.2, 0.1, 0.0), 300, Random(7))
        tables.append(bandit.table("a game"))
    assert tables[0] == tables[1]


def test_a_reward_needs_a_choice() -> None:
    """A cell that nobody chose in is unknown."""
    with pytest.raises(KeyError):
        Bandit(0.1).learn(CELL, 0, 1.0)


def _table(*arms: tuple[float, float, float]) -> BanditTable:
    made = tuple(Arm(trials=trials, reward=reward, error=error) for trials, reward, error in arms)
    return BanditTable(trained_on="nothing", shares=SHARES[: len(arms)], cells={CELL: made})


@pytest.mark.parametrize(
    ("arms", "share"),
    [
        (((100, 0.0, 0.01), (100, 0.1, 0.01)), SHARES[1]),
        (((100, 0.0, 0.06), (100, 0.1, 0.05)), 0.0),  # not clearly better
        (((100, 0.0, 0.01), (10, 0.9, 0.01)), 0.0),  # hardly tried
        (((49, 0.0, 0.01), (100, 0.9, 0.01)), 0.0),  # no window hardly tried
        (((50, 0.0, 0.01), (50, 0.9, 0.01)), SHARES[1]),
        (((100, 0.0, 0.01), (100, 0.2, 0.01), (100, 0.2, 0.01)), SHARES[1]),  # of equals the shortest
    ],
)
def test_only_what_is_clearly_better_than_no_window_is_one(
    arms: tuple[tuple[float, float, float], ...], share: float
) -> None:
    """By the errors of both, after enough trials; in a cell that is unknown there is no window either."""
    rule = learned(_table(*arms))
    assert rule(opening(CELL)) == share
    assert rule(opening("unknown")) == 0.0


def test_no_cell_of_the_table_that_is_shipped_rests_on_few_trials() -> None:
    """Neither those of the window that it gives nor those of none, which that is compared with."""
    table = read_table()
    for name, arms in table.cells.items():
        share = _best(table.shares, arms)
        assert share == 0.0 or min(arms[0].trials, arms[table.shares.index(share)].trials) >= 50, name


@given(opening=OPENINGS)
def test_the_table_that_is_shipped_has_a_share_for_every_opening(opening: Opening) -> None:
    """Between nothing and the bound."""
    assert 0.0 <= learned(read_table())(opening) <= 1.0


def _ending(outcome: Outcome, first_ms: float | None) -> Ending:
    request = Request(
        arrival_ms=100.0, bucket="short", prompt_tokens=1, output_tokens=1, max_output_tokens=1, first_token_ms=1_000,
        deadline_ms=2_000,
    )  # fmt: skip
    return Ending(request=request, outcome=outcome, first_token_ms=first_ms, released_ms=3_000.0, num_rows=1)


def test_an_answer_in_time_is_worth_one_less_what_its_first_token_took() -> None:
    """In soft deadlines, at most one; without a first token it is one."""
    assert worth(_ending(Outcome.IN_DEADLINE, 100.0)) == 1.0
    assert worth(_ending(Outcome.IN_DEADLINE, 600.0)) == 0.5
    assert worth(_ending(Outcome.LATE, 5_000.0)) == -1.0
    assert worth(_ending(Outcome.FALLBACK, None)) == -1.0


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return Experiment(
        traces=(), loads=(), policies=(), slots=4, seconds=5, seed=1, lengths="predicted", costs=CPU,
        settings=Settings(),
    )  # fmt: skip


MACHINE = Machine(costs=CPU, slots=4, seconds=10)
COURSE = Course(kinds=("poisson", "burst"), loads=(0.5, 1.0), seeds=(1,))


def test_training_gives_the_same_table_again(experiment: Experiment) -> None:
    """And one that survives its file."""
    tables = [train(experiment, lambda: None, machines=[MACHINE], on=COURSE) for _ in range(2)]
    assert tables[0] == tables[1]
    assert tables[0].cells
    assert msgspec.json.decode(msgspec.json.encode(tables[0]), type=BanditTable) == tables[0]


def test_windows_are_compared_with_none(experiment: Experiment) -> None:
    """A trial each; none against itself gains nothing, and an empty table is no window."""
    table = BanditTable(trained_on="nothing", shares=SHARES, cells={})
    done: list[None] = []
    trials = compare(experiment, table, lambda: done.append(None), machines=[MACHINE], on=COURSE)
    assert len(done) == COURSE.num_traces
    assert [trial.window for trial in trials] == [choice.name for choice in choices(table)]
    none, last = trials[0], trials[-1]
    assert (none.gain, none.error) == (0.0, 0.0)
    assert msgspec.structs.replace(last, window="0") == none
    assert len(trials_table(trials).splitlines()) == 2 + len(trials)
    assert verdict(trials).startswith("cpu: the best fixed window is ")
