"""What was erased is never told again, and what is asked after it is answered: whoever reads what when."""

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.support.fakes.erasure_world import TOKENS, Client, World, computed
from tests.support.fakes.machine_runs import run_machine
from tests.support.reliability import Reliability

EVENTS = ("e", "f")
MOST_CLIENTS = 3


class Erasure(RuleBasedStateMachine):
    """Clients of one conversation at `edges` gateways ask, ask again, cancel, erase, go and come back.

    `wanted`: who waits for which event's answer. `unwanted`: events that were cancelled in this conversation, for which
    nothing else is promised while that is remembered.
    """

    def __init__(self, edges: int) -> None:
        super().__init__()
        self.edges = edges
        self.runner = asyncio.Runner()
        self.world = self.runner.run(_world())
        self.wanted: set[tuple[int, str]] = set()
        self.unwanted: set[str] = set()
        self.runner.run(self.world.connect(0))

    has_clients = precondition(lambda self: self.world.clients)
    all_know = precondition(lambda self: self.world.all_have_heard)

    def client(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.world.clients))

    def edge(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, self.edges - 1))

    # --- clients

    @precondition(lambda self: len(self.world.clients) < MOST_CLIENTS)
    @rule(data=st.data())
    def connect(self, data: st.DataObject) -> None:
        self.runner.run(self.world.connect(self.edge(data)))

    @has_clients
    @rule(data=st.data(), event=st.sampled_from(EVENTS))
    def ask(self, data: st.DataObject, event: str) -> None:
        """Anew or again. Of several at one gateway the last one hears the answer."""
        client = self.client(data)
        self.runner.run(self.world.ask(client, event))
        here = {id(each) for each in self.world.clients if each.edge == client.edge}
        self.wanted = {(who, what) for who, what in self.wanted if what != event or who not in here}
        if event not in self.unwanted:
            self.wanted.add((id(client), event))

    @has_clients
    @rule(data=st.data(), event=st.sampled_from(EVENTS))
    def cancel(self, data: st.DataObject, event: str) -> None:
        self.runner.run(self.world.cancel(self.client(data), event))
        self.unwanted.add(event)
        self.wanted = {(who, what) for who, what in self.wanted if what != event}

    @has_clients
    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        if self.runner.run(self.world.erase(self.client(data))):
            self.wanted.clear()
            self.unwanted.clear()

    @has_clients
    @rule(data=st.data(), again=st.booleans())
    def lose_and_come_back(self, data: st.DataObject, again: bool) -> None:
        """At any gateway, with the last cursor that came; or not at all."""
        client = self.client(data)
        waited = {what for who, what in self.wanted if who == id(client)}
        self.wanted = {(who, what) for who, what in self.wanted if who != id(client)}
        self.world.lose(client)
        if again and client.open:
            back = self.runner.run(self.world.connect(self.edge(data), client.cursor, before=client))
            told = {client.names[name] for name in client.open}
            if back.recovered:
                here = {id(each) for each in self.world.clients if each.edge == back.edge}
                self.wanted = {(who, what) for who, what in self.wanted if what not in told or who not in here}
                self.wanted |= {(id(back), what) for what in waited & told}

    # --- who reads what when

    @rule(data=st.data(), records=st.integers(1, 4))
    def deliver(self, data: st.DataObject, records: int) -> None:
        self.runner.run(self.world.deliver(self.edge(data), records))

    @rule(reader=st.integers(0, 2))
    def hear(self, reader: int) -> None:
        self.runner.run(self.world.hear(reader))

    @rule()
    def stop(self) -> None:
        self.runner.run(self.world.stop())

    @rule(records=st.integers(0, 2), steps=st.integers(0, 5), acknowledged=st.booleans())
    def work(self, records: int, steps: int, acknowledged: bool) -> None:
        self.runner.run(self.world.work(records, steps, acknowledged=acknowledged))

    # --- what is lost

    @all_know
    @rule()
    def redis_forgets(self) -> None:
        """It has restarted, or thrown the marks out: whoever heard of an erasure still knows."""
        self.world.redis.generations.clear()

    @all_know
    @rule(away=st.booleans())
    def redis_goes_or_comes(self, away: bool) -> None:
        self.world.redis.away = away

    @rule()
    def ended_answers_are_forgotten(self) -> None:
        """So many others have ended since. What was cancelled may be asked for again, and the worker may still remember
        the cancel."""
        self.runner.run(self.world.run_dry())
        self.world.forget_ended()
        self.unwanted.clear()
        self.wanted.clear()

    def teardown(self) -> None:
        """In the end who still waits has the model's answer, whole, and asked for in this very conversation."""
        self.runner.run(self.world.run_dry())
        for client in self.world.clients:
            for event in [what for who, what in self.wanted if who == id(client)]:
                ((status, text),) = client.ended(event)
                (number, *others) = computed(text)
                assert (status, set(others), len(others)) == ("incomplete", {number}, TOKENS - 1)
                assert self.world.epochs[number] == self.world.erased
        self.runner.close()


async def _world() -> World:
    return World()


@pytest.mark.parametrize("edges", [1, 2])
@pytest.mark.promise(2)
def test_what_was_erased_is_never_told_again(edges: int, reliability: Reliability) -> None:
    run_machine(reliability, lambda: Erasure(edges))
