"""The policy that maximises answers within their deadlines.

It keeps requests by value for cost, serves them by deadline, and gives up the others immediately. The queue is sorted
by latest start; `plan.py` decides which requests stay in it, `bars.py` which ones enter it, `rows.py` how many run
together. A running request loses its slot only if it cannot meet its deadline and another one waits for the slot.
"""

from collections.abc import Collection
from heapq import heapreplace
from typing import Final

from shared.wire.messages import Bucket
from shared.wire.topics import BUCKETS
from workers.schedule.goodput.bars import Bars
from workers.schedule.goodput.books import Books
from workers.schedule.goodput.forecast import AT_LEAST, LIKELY, Forecast
from workers.schedule.goodput.plan import LONG, Reserve, make_plan
from workers.schedule.goodput.queue import Item, Queue
from workers.schedule.goodput.rows import Rows
from workers.schedule.lengths import OutputLengths
from workers.schedule.outlook import Outlook
from workers.schedule.policy import Costs, RunningLoad
from workers.schedule.sequence import Phase, Sequence
from workers.schedule.window import Window

# A plan stays valid if durations exceed the predictions by this factor. It is learned: an answer that was begun in vain
# increases it as much as fifteen others decrease it.
_LEAST_MARGIN: Final = 1.1
_MOST_MARGIN: Final = 1.3
_MARGIN_MISSED: Final = 1.03
_MARGIN_MET: Final = 0.998
# An idle machine tries a request that is predicted to be late, once in this time: only calls correct the predictions.
_TEST_EVERY_MS: Final = 1_000.0
_PLAN_EVERY_MS: Final = 10.0
_PLAN_MS_PER_WAITING: Final = 0.3
# share of the offered work: while more is served, every slot may be used
_PRESSED: Final = 0.95


class Goodput:
    def __init__(
        self,
        costs: Costs,
        lengths: OutputLengths,
        *,
        num_slots: int,
        window: Window | None = None,
        reserve: Reserve = Reserve(),  # noqa: B008 - immutable
    ) -> None:
        self._forecast = Forecast(costs, lengths, num_slots=num_slots)
        self._books = Books()
        self._bars = Bars()
        self._rows = Rows(self._forecast, num_slots=num_slots)
        self._num_rows = self._most_rows = num_slots
        self._window = window
        self._reserve = reserve
        self._queue = Queue()
        self._given_up: list[Sequence] = []
        self._margin = _LEAST_MARGIN
        self._tried: set[str] = set()  # requests that run with little hope, in slots that no other one needs
        self._calm = False
        self._planned_unix_ms = self._tested_unix_ms = float("-inf")

    # --- the queue

    def add(self, sequence: Sequence, now_unix_ms: float) -> None:
        if self._window is not None:
            self._window.arrived(min(sequence.arrived_unix_ms, now_unix_ms), alone=not self._queue)
        item = self._forecast.item(sequence)
        self._queue.add(item)
        self._books.offered(item, now_unix_ms)
        # an earlier deadline set by a client says nothing about the other requests
        if sequence.deadline.promised is None:
            self._bars.offered(item)
            self._rows.offered(item)

    def discard(self, sequence: Sequence) -> None:
        item = self._queue.remove(sequence.request_id)
        if item is None:  # already admitted, or given up
            self._tried.discard(sequence.request_id)
        else:
            self._books.dropped(item)

    def ended(self, sequence: Sequence, *, missed: bool | None) -> None:
        if sequence.request_id in self._tried:
            self._tried.remove(sequence.request_id)
            return
        if missed is None:
            return
        margin = self._margin * (_MARGIN_MISSED if missed else _MARGIN_MET)
        self._margin = min(max(margin, _LEAST_MARGIN), _MOST_MARGIN)

    def admit(self, now_unix_ms: float, load: RunningLoad) -> Sequence | None:
        """Return the sequence with the earliest latest start; one that has missed its own is given up in the next
        sweep.

        Returns:
            None while the window holds requests back, and while enough sequences run.
        """
        load = self._batch(load)
        if not load.free:
            return None
        if self._window is not None and self._held(self._window, now_unix_ms, load):
            return None
        step_ms = self._forecast.step_ms(len(load.running) + 1)
        only = LONG if load.free <= self._reserve.unheld(load.running) else None
        while (item := self._queue.pop(first_come=self._calm, only=only)) is not None:
            spare = self._spare(load)
            is_late = item.late(now_unix_ms, step_ms, self._margin, spare=spare)
            if is_late and not self._may_test(item, now_unix_ms, load):
                self._books.dropped(item)
                self._given_up.append(item.sequence)
                continue
            if is_late:
                self._tested_unix_ms = now_unix_ms
            if spare and item.late(now_unix_ms, step_ms, self._margin, spare=False):
                self._tried.add(item.sequence.request_id)
            self._books.served(item)
            self._forecast.admitted(item)
            return item.sequence
        return None

    def wake_unix_ms(self) -> float | None:
        """Return 0 if `admit` has given a sequence up, so that the next sweep reports it; else when the window
        closes."""
        if self._given_up:
            return 0.0
        return self._window.closes_unix_ms if self._window is not None and self._queue else None

    def slack_ms(self, rows: Collection[Sequence], now_unix_ms: float) -> float:
        return self._forecast.slack_ms(rows, now_unix_ms)

    def urgency(self, sequence: Sequence) -> float:
        return 0.0 if self._calm else float(sequence.due_unix_ms)

    def _held(self, window: Window, now_unix_ms: float, load: RunningLoad) -> bool:
        """Return whether requests are held back so that others can join them. The slack excludes the margin and one
        step."""
        queue = self._queue.items
        if not queue or window.closes_unix_ms is None:
            return False
        step_ms = self._forecast.step_ms(len(load.running) + 1)
        latest = min(
            [
                item.latest_start_unix_ms - (self._margin - 1) * (item.prefill_ms + item.num_output * step_ms)
                for item in queue
            ]
        )
        return window.holds(
            now_unix_ms,
            rows=len(queue),
            tokens=sum([len(item.sequence.prompt_ids) for item in queue]),
            room=load.free,
            slack_ms=latest - step_ms - now_unix_ms,
            busy=bool(load.running),
        )

    def _batch(self, load: RunningLoad) -> RunningLoad:
        """Return the load of the running batch, limited to the slots that should be used."""
        return RunningLoad(min(self._num_rows, load.num_slots), load.running)

    def _spare(self, load: RunningLoad) -> bool:
        """Return whether every waiting request has a free slot and most of the machine is idle."""
        return len(self._queue) <= load.free and 2 * len(load.running) < self._most_rows

    def _may_test(self, item: Item, now_unix_ms: float, load: RunningLoad) -> bool:
        """Return whether a late request is tried, since nothing runs and its customer still waits for the model. One
        whose client set an earlier deadline would test nothing."""
        since_ms = now_unix_ms - self._tested_unix_ms
        is_due = not (load.running or 0 <= since_ms < _TEST_EVERY_MS)
        return is_due and item.sequence.deadline.promised is None and now_unix_ms < item.first_token_unix_ms

    # --- giving up

    def give_up(self, now_unix_ms: float, load: RunningLoad) -> list[Sequence]:
        if not self._queue and not self._given_up:
            self._calm = True
            return []
        since_ms = now_unix_ms - self._planned_unix_ms
        every_ms = max(_PLAN_EVERY_MS, _PLAN_MS_PER_WAITING * len(self._queue))
        # A negative value means that the clock was set back, so the elapsed time is unknown.
        due, overdue = (not 0 <= since_ms < every_ms * times for times in (1, 5))
        if self._queue and due and (self._queue.has_new or overdue):
            self._planned_unix_ms = now_unix_ms
            self._num_rows, self._forecast.held_quantile = self._rows.shown()
            if self._books.served_share < _PRESSED:
                self._num_rows = min(self._num_rows, self._rows.most())
            self._turn_away(now_unix_ms, self._batch(load))
            self._plan(now_unix_ms, self._batch(load))
        load = self._batch(load)
        step_ms = self._forecast.step_ms(len(load.running) + len(self._queue))
        self._calm = len(self._queue) <= load.free and self._queue.is_calm(now_unix_ms, step_ms)
        given_up, self._given_up = self._given_up, []
        waiting = [sequence for sequence in given_up if sequence.phase is Phase.WAITING]
        if len(self._queue) <= load.free:
            return waiting
        return waiting + lost(load.running, self._forecast, now_unix_ms, tried=self._tried)

    def _turn_away(self, now_unix_ms: float, load: RunningLoad) -> None:
        """Reject new requests whose cost is above the bar. Reject none while more than a quarter of the slots are
        free."""
        new = self._queue.take_new()
        if len(self._queue) <= load.free and 4 * load.free > load.num_slots:
            return
        if self._reserve.unheld(load.running):
            new = [item for item in new if item.sequence.bucket != LONG]
        for item in self._bars.over(new, self._books.served_share, self._books.at_floor(now_unix_ms)):
            self.discard(item.sequence)
            self._given_up.append(item.sequence)

    def _plan(self, now_unix_ms: float, load: RunningLoad) -> None:
        waiting, tested = self._queue.items, None
        if not load.running and all(
            item.late(now_unix_ms, self._forecast.step_ms(1), self._margin, spare=True) for item in waiting
        ):
            tested = next((item for item in waiting if self._may_test(item, now_unix_ms, load)), None)
        plan = make_plan(
            [item for item in waiting if item is not tested],
            self._books,
            self._forecast,
            load,
            now_unix_ms,
            margin=self._margin,
            spare=self._spare(load),
            reserve=self._reserve,
        )
        self._queue.replace(plan.kept if tested is None else sorted([*plan.kept, tested]), plan.given_up)
        self._given_up += [item.sequence for item in plan.given_up]

    # --- outlook

    def outlook(self, now_unix_ms: float, load: RunningLoad) -> Outlook:
        """Return the outlook for a request that arrives now, after the waiting requests that it would not displace."""
        forecast, queue, free_slots = self._forecast, self._queue.items, load.free
        load = self._batch(load)
        floors = self._books.at_floor(now_unix_ms)
        step_ms = forecast.step_ms(min(len(load.running) + len(queue) + 1, load.num_slots))
        released, prompts_ready = forecast.releases(now_unix_ms, load, step_ms, num_starts=len(queue) + 1)
        common = released.copy()
        self._reserve.set_aside(common, load.running)
        first_token_ms: dict[Bucket, float] = {}
        service_ms: dict[Bucket, float] = {}
        for bucket in BUCKETS:
            mean = self._books.mean_cost_ms(bucket) or forecast.mean_cost_ms
            service_ms[bucket] = mean
            at_floor = bucket in floors
            ahead = [item for item in queue if (item.sequence.bucket == bucket if at_floor else item.cost_ms <= mean)]
            free, prompts = (released if bucket == LONG else common).copy(), prompts_ready
            for item in ahead:
                prompts = max(free[0], prompts) + item.prefill_ms
                heapreplace(free, prompts + item.likely_output * step_ms)
            held_ms = forecast.num_held(bucket, LIKELY) * step_ms
            first_token_ms[bucket] = max(free[0], prompts) + forecast.mean_prefill_ms + held_ms - now_unix_ms
        return Outlook(
            running=len(load.running),
            waiting=len(queue),
            free_slots=free_slots,
            backlog_ms=sum([item.cost_ms for item in queue]),
            first_token_ms=first_token_ms,
            service_ms=service_ms,
            cold_ms=forecast.mean_cold_ms,
            prompt_tokens=forecast.mean_prompt_tokens,
            output_tokens=forecast.mean_output_tokens,
        )


def lost(
    rows: Collection[Sequence], forecast: Forecast, now_unix_ms: float, *, tried: Collection[str]
) -> list[Sequence]:
    """Return the rows that lose their slot if another request waits for it.

    They cannot meet their deadline even with a short end and without further prompts in between. Rows in `tried` are
    bets, and lose their slot unless they are likely to meet it.
    """
    if not rows:
        return []
    alone_ms = forecast.bare_step_ms(1)
    together_ms = forecast.bare_step_ms(len(rows))
    found: list[Sequence] = []
    for row in rows:
        held = row.held and row.shown_unix_ms is None
        left_ms = row.deadline.deadline_unix_ms - now_unix_ms
        shown_ms = row.deadline.first_token_unix_ms - now_unix_ms if held else left_ms
        if row.expected_output_tokens * alone_ms < min(left_ms, shown_ms):
            continue
        quantile = LIKELY if row.request_id in tried else AT_LEAST
        in_vain = held and forecast.left_held(row, quantile) * together_ms > shown_ms
        if in_vain or forecast.left(row, quantile) * together_ms > left_ms:
            found.append(row)
    return found
