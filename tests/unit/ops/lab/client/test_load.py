"""A load: who is asked over which connection, when, and what is lost where a server goes away."""

import asyncio
from collections.abc import Callable

import pytest

from ops.lab.client import load as module
from ops.lab.client.dialogue import CONNECTION_LOST
from ops.lab.client.load import CONNECT_FAILED, LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import Planned, plan_of
from shared.client.telling import ConnectFailed
from shared.wire.messages import Limits, ResponseCreate, SessionStart
from tests.support.fakes.gateways import until

LIMITS = Limits(
    max_message_bytes=4_096, max_input_tokens=99, max_output_tokens=64, max_inflight=2, messages_per_minute=60,
    first_token_ms=500, deadline_ms=1_000,
)  # fmt: skip


class Server:
    """What the connections of a load speak to: it answers each request in the loop's next turn, unless `holds`."""

    def __init__(self) -> None:
        self.made: list[FakeConnection] = []
        self.is_up = True
        self.holds = False

    @property
    def open_at_once(self) -> int:
        return sum(len(connection.inflight) for connection in self.made)


class FakeConnection:
    def __init__(self, server: Server, settled: Callable[["FakeConnection", Outcome], None]) -> None:
        self._server, self._settled = server, settled
        self.inflight: dict[str, Outcome] = {}
        self.asked: list[str] = []
        self.session: str | None = None
        self.lost = self.closed = False
        self.most = 0
        server.made.append(self)

    @property
    def num_inflight(self) -> int:
        return len(self.inflight)

    async def open(self, _url: str, start: SessionStart) -> None:
        await asyncio.sleep(0)
        if not self._server.is_up:
            raise ConnectFailed("nobody listens")
        self.session = start.session_id

    def ask(self, request: ResponseCreate, outcome: Outcome, now: float) -> None:
        outcome.sent_s = now
        self.inflight[request.event_id] = outcome
        self.asked.append(request.event_id)
        self.most = max(self.most, len(self.inflight))
        if not self._server.holds:
            asyncio.get_running_loop().call_soon(self.answer, request.event_id)

    def answer(self, event_id: str) -> None:
        outcome = self.inflight.pop(event_id)
        outcome.done_s = outcome.sent_s
        self._settled(self, outcome)

    def lose(self) -> None:
        self.lost = True
        for event_id in list(self.inflight):
            outcome = self.inflight.pop(event_id)
            outcome.error = CONNECTION_LOST
            self._settled(self, outcome)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(module, "ChatConnection", lambda settled: FakeConnection(found, settled))
    monkeypatch.setattr(module, "_POLL_S", 0.0)
    monkeypatch.setattr(module, "_START_S", 0.0)
    monkeypatch.setattr(module, "OPEN_BEFORE_S", 0.0)
    return found


def talk(*steps: tuple[float, str]) -> list[Planned]:
    return [
        Planned(request=ResponseCreate(event_id=f"{n}", input="?"), deadline_ms=1_000, at_s=at_s, session=session)
        for n, (at_s, session) in enumerate(steps)
    ]


def test_a_plan_has_the_gateways_deadline_unless_another_is_asked_for() -> None:
    (one,) = plan_of(["a"], LIMITS, max_output_tokens=8)
    assert (one.deadline_ms, one.request.deadline_ms, one.session) == (1_000, None, "")
    (one,) = plan_of(["a"], LIMITS, max_output_tokens=8, deadline_ms=300, times=[2.5], alone=True)
    assert (one.deadline_ms, one.request.deadline_ms, one.session, one.at_s) == (300, 300, "q0", 2.5)


async def test_clients_of_a_closed_loop_ask_on_when_they_are_answered(server: Server) -> None:
    server.holds = True
    running = asyncio.create_task(
        LoadRun("", connections=3, max_inflight=1).run(plan_of("abcdefg", LIMITS, max_output_tokens=1), clients=3)
    )
    for settled in range(7):
        await until(lambda: server.open_at_once == min(3, 7 - settled))  # noqa: B023 - it ends before the next turn
        busy = next(each for each in server.made if each.inflight)
        busy.answer(next(iter(busy.inflight)))
    outcomes = await running
    assert [one.error for one in outcomes] == [None] * 7
    assert sorted(event for each in server.made for event in each.asked) == [f"bench-{n}" for n in range(7)]
    assert {each.most for each in server.made} == {1}
    assert len(server.made) == 3
    assert all(each.closed for each in server.made)


async def test_a_sessions_requests_go_over_one_connection_that_ends_with_them(server: Server) -> None:
    outcomes = await LoadRun("", name="talk").run(talk((0.0, "a"), (0.0, "b"), (0.001, "a")))
    assert [one.error for one in outcomes] == [None] * 3
    assert sorted(each.asked for each in server.made) == [["0", "2"], ["1"]]
    sessions = {each.session for each in server.made}
    assert {str(session).split("-")[0] for session in sessions} == {"talk"}
    assert {str(session).split("-")[2] for session in sessions} == {"a", "b"}
    assert all(each.closed for each in server.made)


async def test_a_connection_has_no_more_in_flight_than_it_may(server: Server) -> None:
    server.holds = True
    load = LoadRun("", connections=2, max_inflight=2)
    running = asyncio.create_task(load.run(plan_of("abcdef", LIMITS, max_output_tokens=1, times=[0.0] * 6)))
    await until(lambda: server.open_at_once == 4)
    assert [each.most for each in server.made] == [2, 2]
    server.holds = False
    for each in server.made:
        for event in list(each.inflight):
            each.answer(event)
    assert [one.error for one in await running] == [None] * 6
    assert [each.most for each in server.made] == [2, 2]


@pytest.mark.parametrize("session", ["", "a"])
async def test_what_a_server_that_goes_away_had_to_answer_is_lost_and_so_is_the_rest(
    server: Server, session: str
) -> None:
    """A server that dies in the middle does not answer half of its load well."""
    server.holds = True
    running = asyncio.create_task(LoadRun("").run(talk((0.0, session), (0.05, session), (0.06, session))))
    await until(lambda: server.open_at_once == 1)
    server.is_up = False
    server.made[0].lose()
    assert [one.error for one in await running] == [CONNECTION_LOST, CONNECT_FAILED, CONNECT_FAILED]
