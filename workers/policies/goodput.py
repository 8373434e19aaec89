"""The most answers within their deadlines: keep by value for cost, serve by deadline, give up the rest at once.

The waiting stand in the order of their latest starts, and are planned over the slots as they will become free. Where
one would start too late, the plan gives up whichever of those up to it costs the most for its value: Moore's and
Hodgson's rule, which on one machine keeps the most jobs (J. M. Moore, Management Science 15, 1968), here over slots and
with predicted costs. Two floors bend it: a class keeps at least half of its share of what is offered, and a tenant pays
more for what exceeds its fair share.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final

from shared.messages import Bucket
from shared.topics import BUCKETS
from workers.outlook import Outlook
from workers.policies.shares import Shares
from workers.policy import Costs, Lengths, Load
from workers.sequence import Phase, Sequence
from workers.window import Waiting, Window

# A plan promises what holds when its predictions turn out so many times worse. The margin is learned: each answer that
# was begun in vain widens it as much as fifteen that were not let it shrink.
_LEAST_MARGIN: Final = 1.1
_MOST_MARGIN: Final = 1.3
_MARGIN_MISSED: Final = 1.03
_MARGIN_MET: Final = 0.998
# Half of its share is what a class is promised; what it keeps and loses later is counted here, and there it is not.
_CLASS_FLOOR: Final = 0.57
_PLAN_EVERY_MS: Final = 10.0
_PLAN_MS_PER_WAITING: Final = 0.3
_LIKELY: Final = 0.5
_AT_LEAST: Final = 0.05
_FORGET: Final = 0.98
# While everybody's latest start is so many times farther than the prompts that wait take, first come is first served:
# an order by deadline would only let the long wait for the short.
_CALM: Final = 8.0


@dataclass(slots=True, eq=False)
class _Item:
    """A waiting sequence and what it is predicted to take. `cost_ms` is its share of the machine in a full batch;
    `least_output` is what nearly every answer has, for those that take nobody's place."""

    sequence: Sequence
    prefill_ms: float
    num_output: int
    least_output: int
    cost_ms: float
    first_token_unix_ms: int
    deadline_unix_ms: int
    latest_start_unix_ms: float
    order: int

    @property
    def key(self) -> tuple[float, int]:
        return (self.latest_start_unix_ms, self.order)

    def __lt__(self, other: "_Item") -> bool:
        return self.key < other.key


class Goodput:
    honours_deadlines = True
    run_to_completion = False

    def __init__(self, costs: Costs, lengths: Lengths, *, num_slots: int, window: Window | None = None) -> None:
        self._costs = costs
        self._lengths = lengths
        self._num_slots = num_slots
        self._window = window
        self._queue: list[_Item] = []
        self._items: dict[str, _Item] = {}
        self._order = 0
        self._classes = Shares()
        self._tenants = Shares()
        self._given_up: list[Sequence] = []
        self._margin = _LEAST_MARGIN
        self._tried: set[str] = set()  # running without much hope, in slots that nobody else asked for
        self._changed = False
        self._calm = False
        self._planned_unix_ms = float("-inf")
        # Of those lately taken: what a full batch interleaves with its decode steps.
        self._prefill_ms, self._num_output, self._num_prompt = 0.0, 0.0, 0.0

    # --- the queue

    def add(self, sequence: Sequence, now_unix_ms: float) -> None:
        if self._window is not None:
            self._window.arrived(min(sequence.arrived_unix_ms, now_unix_ms), alone=not self._queue)
        item = self._item(sequence)
        insort(self._queue, item)
        self._items[sequence.request_id] = item
        self._classes.offer(sequence.bucket, item.cost_ms, now_unix_ms)
        self._tenants.offer(sequence.tenant, item.cost_ms, now_unix_ms)
        self._changed = True

    def discard(self, sequence: Sequence) -> None:
        item = self._items.pop(sequence.request_id, None)
        if item is not None:
            self._drop(item)

    def ended(self, sequence: Sequence, *, missed: bool) -> None:
        if sequence.request_id in self._tried:
            self._tried.remove(sequence.request_id)
            return
        margin = self._margin * (_MARGIN_MISSED if missed else _MARGIN_MET)
        self._margin = min(max(margin, _LEAST_MARGIN), _MOST_MARGIN)

    def take(self, now_unix_ms: float, load: Load) -> Sequence | None:
        """The earliest latest start; one that has missed its own is given up with the next sweep. None while held."""
        if self._window is not None and self._window.is_open and self._held(self._window, now_unix_ms, load):
            return None
        step_ms = self._step_ms(len(load.running) + 1)
        while self._queue:
            spare = self._spare(load)
            item = self._queue.pop(self._first_come() if self._calm else 0)
            del self._items[item.sequence.request_id]
            if self._late(item, now_unix_ms, step_ms, spare=spare):
                self._give_up(item)
                continue
            if spare and self._late(item, now_unix_ms, step_ms, spare=False):
                self._tried.add(item.sequence.request_id)
            self._classes.keep(item.sequence.bucket, -item.cost_ms)
            self._classes.serve(item.sequence.bucket, item.cost_ms)
            self._tenants.keep(item.sequence.tenant, -item.cost_ms)
            self._tenants.serve(item.sequence.tenant, item.cost_ms)
            self._learn(item)
            return item.sequence
        return None

    def wake_unix_ms(self) -> float | None:
        """At once, where `take` has given somebody up: the next sweep says so. Else when the window closes."""
        if self._given_up:
            return 0.0
        return self._window.closes_unix_ms if self._window is not None and self._queue else None

    def _held(self, window: Window, now_unix_ms: float, load: Load) -> bool:
        """Whether the waiting are held so that others can join them. Slack is less the margin and a step."""
        queue = self._queue
        if not queue:
            return False
        step_ms = self._step_ms(len(load.running) + 1)
        latest = min(
            [
                item.latest_start_unix_ms - (self._margin - 1) * (item.prefill_ms + item.num_output * step_ms)
                for item in queue
            ]
        )
        waiting = Waiting(
            rows=len(queue),
            tokens=sum([len(item.sequence.prompt_ids) for item in queue]),
            slack_ms=latest - step_ms - now_unix_ms,
            free_slots=load.free,
            busy=bool(load.running),
        )
        return window.holds(waiting, now_unix_ms)

    def urgency(self, sequence: Sequence) -> float:
        return 0.0 if self._calm else float(sequence.due_unix_ms)

    def _first_come(self) -> int:
        return min(range(len(self._queue)), key=lambda place: self._queue[place].order)

    def _is_calm(self, now_unix_ms: float, load: Load) -> bool:
        if len(self._queue) > load.free:
            return False
        prompts_ms = sum([item.prefill_ms for item in self._queue])
        return not self._queue or self._queue[0].latest_start_unix_ms - now_unix_ms > _CALM * prompts_ms

    # --- who is given up

    def give_up(self, now_unix_ms: float, load: Load) -> list[Sequence]:
        since_ms = now_unix_ms - self._planned_unix_ms
        every_ms = max(_PLAN_EVERY_MS, _PLAN_MS_PER_WAITING * len(self._queue))
        if self._queue and since_ms >= every_ms and (self._changed or since_ms >= 5 * every_ms):
            self._planned_unix_ms = now_unix_ms
            self._changed = False
            self._plan(now_unix_ms, load)
        self._calm = self._is_calm(now_unix_ms, load)
        given_up, self._given_up = self._given_up, []
        waiting = [sequence for sequence in given_up if sequence.phase is Phase.WAITING]
        return waiting + self._lost(now_unix_ms, load)

    def _lost(self, now_unix_ms: float, load: Load) -> list[Sequence]:
        """Running ones whose deadline is out of reach even for a short end and without another prompt between.

        While nobody waits for their slots they go on, and what they can write by their deadline is read.
        """
        running = load.running
        if not running or len(self._queue) <= load.free:
            return []
        step_ms = self._costs.decode_ms(1, 0)
        lost: list[Sequence] = []
        for row in running:
            left_ms = row.deadline.deadline_unix_ms - now_unix_ms
            if row.expected_output_tokens * step_ms < left_ms:
                continue
            quantile = _LIKELY if row.request_id in self._tried else _AT_LEAST
            if self._left(row, quantile) * self._costs.decode_ms(len(running), 0) > left_ms:
                lost.append(row)
        return lost

    def _plan(self, now_unix_ms: float, load: Load) -> None:
        """Moore and Hodgson over the slots: who would start too late costs the dearest of those so far its place."""
        queue, num_slots = self._queue, self._num_slots
        step_ms = self._step_ms(len(load.running) + len(queue))
        free_unix_ms, prompts_unix_ms = self._releases(now_unix_ms, load, step_ms)
        spare = self._spare(load)
        ahead_ms = 0.0  # what has been given up so far brings the rest forward
        kept: list[_Item] = []
        margin, slow_ms = self._margin, step_ms * self._margin
        for item in queue:  # `_late` and `max` without the calls: a thousand may wait
            start = free_unix_ms[0]
            if prompts_unix_ms > start:  # noqa: PLR1730 - a call would cost more than the comparison
                start = prompts_unix_ms
            start -= ahead_ms
            if start < now_unix_ms:  # noqa: PLR1730
                start = now_unix_ms
            first = start + item.prefill_ms * margin
            num_output = item.least_output if spare else item.num_output
            if first > item.first_token_unix_ms or first + num_output * slow_ms > item.deadline_unix_ms:
                victim = self._dearest(kept, item, now_unix_ms)
                self._classes.keep(victim.sequence.bucket, -victim.cost_ms)
                self._tenants.keep(victim.sequence.tenant, -victim.cost_ms)
                self._given_up.append(victim.sequence)
                if victim is item:
                    continue
                kept.remove(victim)
                ahead_ms += max((victim.prefill_ms + victim.num_output * step_ms) / num_slots, victim.prefill_ms)
                start = max(max(free_unix_ms[0], prompts_unix_ms) - ahead_ms, now_unix_ms)
                if self._late(item, start, step_ms, spare=spare):
                    self._classes.keep(item.sequence.bucket, -item.cost_ms)
                    self._tenants.keep(item.sequence.tenant, -item.cost_ms)
                    self._given_up.append(item.sequence)
                    continue
            kept.append(item)
            prompts_unix_ms = start + ahead_ms + item.prefill_ms
            heapreplace(free_unix_ms, prompts_unix_ms + item.num_output * step_ms)
        self._keep_only(kept)

    def _keep_only(self, kept: list[_Item]) -> None:
        if len(kept) < len(self._queue):
            self._queue = kept
            self._items = {item.sequence.request_id: item for item in kept}

    def _releases(self, now_unix_ms: float, load: Load, step_ms: float) -> tuple[list[float], float]:
        """When each slot is free, as a heap; and when the prompts that have slots are computed."""
        free = [now_unix_ms] * load.free
        prompts = now_unix_ms
        for row in load.running:
            ends = now_unix_ms + self._left(row, _LIKELY) * step_ms
            if row.phase is Phase.PREFILL:
                unread = len(row.prompt_ids) - row.computed
                prompts += self._costs.prefill_ms(unread, past=row.computed)
                ends += prompts - now_unix_ms
            free.append(ends)
        heapify(free)
        return free, prompts

    def _dearest(self, kept: list[_Item], item: _Item, now_unix_ms: float) -> _Item:
        """Whom to give up: the most cost for its value, but of no class at its floor while there is another."""
        floors = self._classes.at_floor(_CLASS_FLOOR, now_unix_ms)
        excess = self._tenants.excess(now_unix_ms)

        def price(one: _Item) -> float:
            cost = one.cost_ms / one.sequence.weight * excess.get(one.sequence.tenant, 1.0)
            return cost if one.sequence.bucket not in floors else cost * 1e-6

        return max([*kept, item], key=price)

    # --- predictions

    def outlook(self, now_unix_ms: float, load: Load) -> Outlook:
        """A request that came now: behind those that it would not displace."""
        floors = self._classes.at_floor(_CLASS_FLOOR, now_unix_ms)
        first_token_ms: dict[Bucket, float] = {}
        service_ms: dict[Bucket, float] = {}
        step_ms = self._step_ms(len(load.running) + len(self._queue) + 1)
        for bucket in BUCKETS:
            mean = self._classes.mean_cost(bucket) or self._prior_cost_ms()
            service_ms[bucket] = mean
            ahead = [
                item
                for item in self._queue
                if (item.sequence.bucket == bucket if bucket in floors else item.cost_ms <= mean)
            ]
            free, prompts = self._releases(now_unix_ms, load, step_ms)
            for item in ahead:
                prompts = max(free[0], prompts) + item.prefill_ms
                heapreplace(free, prompts + item.num_output * step_ms)
            first_token_ms[bucket] = max(free[0], prompts) + self._prefill_ms - now_unix_ms
        return Outlook(
            running=len(load.running),
            waiting=len(self._queue),
            free_slots=load.free,
            backlog_ms=sum([item.cost_ms for item in self._queue]),
            first_token_ms=first_token_ms,
            service_ms=service_ms,
        )

    def _item(self, sequence: Sequence) -> _Item:
        num_prompt, num_output = len(sequence.prompt_ids), sequence.expected_output_tokens
        prefill_ms = self._costs.prefill_ms(num_prompt)
        slots = self._num_slots
        share_ms = self._costs.decode_ms(slots, slots * (num_prompt + num_output // 2)) / slots
        step_ms = self._step_ms(slots)
        deadline = sequence.deadline
        self._order += 1
        return _Item(
            sequence=sequence,
            prefill_ms=prefill_ms,
            num_output=num_output,
            least_output=sequence.output_hint
            or self._lengths.predict(sequence.bucket, sequence.max_output_tokens, _AT_LEAST),
            cost_ms=prefill_ms + num_output * share_ms,
            first_token_unix_ms=deadline.first_token_unix_ms,
            deadline_unix_ms=deadline.deadline_unix_ms,
            latest_start_unix_ms=min(
                deadline.first_token_unix_ms - prefill_ms,
                deadline.deadline_unix_ms - prefill_ms - num_output * step_ms,
            ),
            order=self._order,
        )

    def _late(self, item: _Item, start_unix_ms: float, step_ms: float, *, spare: bool) -> bool:
        """Whether an answer that starts then ends too late. Where slots are to spare, only if even a short one does:
        trying costs nobody anything, and is how lengths are learned."""
        num_output = item.least_output if spare else item.num_output
        first = start_unix_ms + item.prefill_ms * self._margin
        return first > item.first_token_unix_ms or first + num_output * step_ms * self._margin > item.deadline_unix_ms

    def _spare(self, load: Load) -> bool:
        """Whether those who wait take nobody's place, and most of the machine is idle."""
        return len(self._queue) <= load.free and 2 * len(load.running) < load.num_slots

    def _left(self, row: Sequence, quantile: float) -> int:
        """Tokens that a running sequence has still to write."""
        written = len(row.output_ids)
        if row.output_hint is not None:
            return max(row.output_hint - written, 1)
        return self._lengths.remaining(row.bucket, written, row.max_output_tokens, quantile)

    def _step_ms(self, rows: int) -> float:
        """From one token of a row to its next among `rows`: a decode step, and the prompts that come between.

        A row that writes `n` tokens is followed by another whose prompt is computed meanwhile, so each decode step of
        `rows` is joined by `rows / n` prompts.
        """
        rows = min(rows, self._num_slots)
        decode_ms = self._costs.decode_ms(rows, int(rows * (self._num_prompt + self._num_output / 2)))
        return decode_ms + (rows * self._prefill_ms / self._num_output if self._num_output else 0.0)

    def _learn(self, item: _Item) -> None:
        if not self._num_output:
            self._prefill_ms, self._num_output = item.prefill_ms, float(item.num_output)
            self._num_prompt = float(len(item.sequence.prompt_ids))
            return
        new = 1 - _FORGET
        self._prefill_ms += new * (item.prefill_ms - self._prefill_ms)
        self._num_output += new * (item.num_output - self._num_output)
        self._num_prompt += new * (len(item.sequence.prompt_ids) - self._num_prompt)

    def _prior_cost_ms(self) -> float:
        return self._prefill_ms + self._num_output * self._costs.decode_ms(self._num_slots, 0) / self._num_slots

    # --- the books

    def _give_up(self, item: _Item) -> None:
        self._classes.keep(item.sequence.bucket, -item.cost_ms)
        self._tenants.keep(item.sequence.tenant, -item.cost_ms)
        self._given_up.append(item.sequence)

    def _drop(self, item: _Item) -> None:
        place = bisect_left(self._queue, item)
        assert self._queue[place] is item, "the queue is in order"
        del self._queue[place]
        self._classes.keep(item.sequence.bucket, -item.cost_ms)
        self._tenants.keep(item.sequence.tenant, -item.cost_ms)
