"""The gRPC methods `Respond` and `Resume`: the first asks a question and returns its answer, the second returns the
rest of an answer whose client has lost its connection.

Neither keeps a session open. Each call opens one through `gateway.exchange`, and closes it when the answer has ended.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from gateway.doors.grpc.calls import Call
from gateway.doors.grpc.messages import checked, read
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from gateway.exchange.exchange import Exchange, News
from gateway.exchange.exchanges import KEEP_ALIVE_S, Exchanges
from gateway.exchange.question import ClientQuestion
from gateway.exchange.refusals import RefusalError
from gateway.request.outbox import Outbox
from shared.process.clock import now_unix_ms
from shared.wire.messages import ResponseCreate, Resume, SessionStart
from shared.wire.outcome import ErrorDetail, Response

# The options of `ResponseCreate` that a question may have.
_OPTIONS: Final = ("max_output_tokens", "temperature", "top_p", "seed", "stop", "first_token_ms", "instructions")
# Prefix of the event id of a question without one (`Exchanges.ask`): no client can ask for its answer again.
_UNNAMED: Final = "body-"


@dataclass(frozen=True, slots=True)
class Responding:
    exchanges: Exchanges

    async def respond(self, call: Call) -> None:
        """Ask a question and write its answer. Raises `ProtocolError`."""
        data = await self._request(call)
        with self.exchanges.charging_decoding(call.asker.address, len(data)):
            said = read(data, v1.RespondRequest)
            session = checked({"session_id": said.pop("session_id", None)}, SessionStart).session_id
            asked = checked({"event_id": "unnamed", **said}, ResponseCreate)
        question = ClientQuestion(
            body=data,
            input=asked.input,
            turns=asked.turns if session else asked.turns or (),
            options={name: getattr(asked, name) for name in _OPTIONS},
            metadata=asked.metadata,
        )
        asker = call.asker
        shortest_ms = min((ms for ms in (asker.deadline_ms, asked.deadline_ms) if ms is not None), default=None)
        asker = replace(
            asker,
            deadline_ms=shortest_ms,
            traceparent=asked.traceparent or asker.traceparent,
            received_unix_ms=now_unix_ms(),
        )
        exchange = await self.exchanges.begin(asker, session or partial(self.exchanges.own_session, asker, question))
        try:
            call.lost = exchange.lost
            if not call.gone:
                await self._tell(call, exchange, await self.exchanges.ask(asker, exchange, question))
        finally:
            self.exchanges.leave(exchange, keep=asker.key is not None)

    async def resume(self, call: Call) -> None:
        """Write the rest of an answer. Raises `ProtocolError`."""
        data = await self._request(call)
        with self.exchanges.charging_decoding(call.asker.address, len(data)):
            said = read(data, v1.ResumeRequest)
            session = checked({"session_id": said.pop("session_id")}, SessionStart).session_id
            resume = checked(said, Resume)
        exchange = await self.exchanges.resume(call.asker, session or "", resume.cursor, resume.age_ms)
        try:
            call.lost = exchange.lost
            if not call.gone:
                await self._tell(call, exchange, [])
        finally:
            self.exchanges.leave(exchange, keep=not (exchange.event_id or "").startswith(_UNNAMED))

    async def _request(self, call: Call) -> bytes:
        """Return a call's only message, unless its sender is refused. Raises `ProtocolError`."""
        self.exchanges.check(call.asker)
        return await call.request()

    async def _tell(self, call: Call, exchange: Exchange, items: list[News]) -> None:
        """Write the messages that a WebSocket client would get, until the answer's end. Raises `ProtocolError` if there
        is no answer."""
        assert exchange.seal is not None  # the session has begun
        assert exchange.created is not None
        outbox = Outbox()
        outbox.start_session(exchange.seal, exchange.points, now_unix_ms())
        await call.write(exchange.created)
        while not call.gone:
            if (error := self.exchanges.failure_in(items)) is not None:
                raise RefusalError(error)
            for item in items:
                if not isinstance(item, ErrorDetail):
                    outbox.put(item)
            for message in outbox.drain(now_unix_ms()):
                await call.write(message)
            if any(isinstance(item, Response) for item in items):
                return
            items = await exchange.news(KEEP_ALIVE_S)
