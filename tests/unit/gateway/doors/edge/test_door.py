"""The door that edges call: the signed FAQ, their turns, the erasures of both sides."""

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from structlog.testing import capture_logs

from gateway.doors.edge.door import EdgeDoor
from shared.conversation.erasures import LONGEST_OUTAGE_S
from shared.conversation.journal import CLOCK_HEADER, Journalled
from shared.conversation.turn import Turn
from shared.errors import StoreUnavailable
from shared.faq.entries import PACKAGED_PATH
from shared.faq.live import LiveFaq
from shared.process.clock import now_unix_ms
from shared.settings import FaqSettings
from shared.versions.faq_bundle import Bundle, sign_faq
from shared.versions.signature import key_id
from shared.wire.messages import Erase
from shared.wire.session_key import SessionKey
from tests.support import tokens
from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import http_of

KEY = Ed25519PrivateKey.generate()
TRUSTED = {key_id(KEY.public_key()): KEY.public_key()}
NEW_YEAR = json.loads(PACKAGED_PATH.read_bytes())[:1]


class KeepingHistory:
    """Redis' turns, by conversation."""

    def __init__(self) -> None:
        self.kept: dict[SessionKey, list[Turn]] = {}
        self.away = False

    async def take(self, session: SessionKey, turn: Turn, entry: Journalled) -> bool:
        if self.away:
            raise StoreUnavailable("away")
        assert entry.turn is turn
        self.kept.setdefault(session, []).append(turn)
        return True


@dataclass
class Centre:
    client: httpx2.AsyncClient
    door: EdgeDoor
    history: KeepingHistory
    gateway: Edge

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.client.get(path, headers=bearing() | headers)

    async def add(self, *entries: Journalled, **headers: str) -> httpx2.Response:
        return await self.client.post("/history", content=msgspec.json.encode(entries), headers=bearing() | headers)


def bearing(**claims: Any) -> dict[str, str]:
    return tokens.bearer_of("edge-1", **({"edge": True, "tenant": "shop"} | claims))


@pytest_asyncio.fixture
async def centre(tmp_path: Path) -> AsyncIterator[Centre]:
    faq, gateway, history = tmp_path / "faq.json", Edge(), KeepingHistory()
    faq.write_bytes(PACKAGED_PATH.read_bytes())
    sign_faq(faq, KEY, 7).write(tmp_path / "faq.signed")
    gateway.gateway.erasing.log.whole = True
    door = EdgeDoor(
        http=http_of(gateway, tokens.gate()),
        signed=tmp_path / "faq.signed",
        faq=LiveFaq(FaqSettings(path=faq)),
        history=history,  # type: ignore[arg-type]
        erasing=gateway.gateway.erasing,
    )
    transport = httpx2.ASGITransport(app=door.app())
    async with httpx2.AsyncClient(transport=transport, base_url="http://centre") as client:
        yield Centre(client, door, history, gateway)


async def test_an_edge_gets_the_signed_faq_once(centre: Centre) -> None:
    got = await centre.get("/faq")
    bundle = Bundle.read(got.content, b64decode(got.headers["replyline-signature"]), "it")
    assert (bundle.version, bundle.signer(TRUSTED)) == (7, key_id(KEY.public_key()))
    assert bundle.entries == centre.door.faq.index.entries
    assert (await centre.get("/faq", **{"if-none-match": got.headers["etag"]})).status_code == 304
    assert Bundle.read(got.content.replace(b"30 days", b"90 days"), bundle.signature, "it").signer(TRUSTED) is None


async def test_a_faq_changed_since_it_was_signed_is_sent_to_no_edge(centre: Centre, tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_text(json.dumps(NEW_YEAR))
    centre.door.faq = LiveFaq(FaqSettings(path=tmp_path / "faq.json"))
    got = await centre.get("/faq")
    assert (got.status_code, got.json()["error"]["code"]) == (503, "faq_not_signed")
    assert "replyline faq sign" in got.json()["error"]["message"]
    sign_faq(tmp_path / "faq.json", KEY, 8).write(tmp_path / "faq.signed")
    assert (await centre.get("/faq")).headers["etag"] == '"8"'


@pytest.mark.parametrize("claims", [None, {"edge": False}, {"exp": 1}])
async def test_only_an_edges_token_opens_the_door(centre: Centre, claims: dict[str, Any] | None) -> None:
    headers = {} if claims is None else bearing(**claims)
    for path in ("/faq", "/erasures"):
        assert (await centre.client.get(path, headers=headers)).status_code == 401
    assert (await centre.client.post("/history", content=b"[]", headers=headers)).status_code == 401


def answered(name: str, asked_unix_ms: float, generation: int = 0) -> Turn:
    outcome = msgspec.structs.asdict(Turn.uncounted("completed", "stop", "faq", output_text="30 days."))
    asked = int(asked_unix_ms)
    return Turn(**outcome, request_id=name, user="How long?", asked_unix_ms=asked, generation=generation)


async def test_what_an_edge_answered_is_stored_in_its_own_tenant(centre: Centre) -> None:
    turn = answered("resp_1", now_unix_ms())
    numbered = Journalled(session_id="s", turn=turn, epoch="e", sequence=1)
    assert (await centre.add(numbered)).json() == {"taken": 1}
    assert centre.history.kept == {SessionKey("shop", "s"): [turn]}
    assert (await centre.client.post("/history", content=b'[{"turn":3}]', headers=bearing())).status_code == 400
    centre.history.away = True
    assert (await centre.add(numbered)).status_code == 503


@pytest.mark.parametrize("revoked", [False, True])
async def test_nothing_is_stored_with_a_token_that_is_revoked_during_the_upload(
    centre: Centre, *, revoked: bool
) -> None:
    entry = Journalled(session_id="s", turn=answered("resp_1", now_unix_ms()), epoch="e", sequence=1)
    gate = centre.door.http.exchanges.gate
    assert gate is not None

    async def upload() -> AsyncIterator[bytes]:
        whole = msgspec.json.encode([entry])
        yield whole[:10]
        if revoked:
            gate.revoked_until = {("shop", "edge-1"): now_unix_ms() + 60_000}
        yield whole[10:]

    got = await centre.client.post("/history", content=upload(), headers=bearing(iat=int(now_unix_ms() / 1_000)))
    assert got.status_code == (401 if revoked else 200)
    assert bool(centre.history.kept) is not revoked


@pytest.mark.parametrize(
    ("since_s", "generation", "stored"),
    [(60, 0, False), (LONGEST_OUTAGE_S - 60, 0, False), (60, 1, True), (None, 0, True)],
    ids=["a minute ago", "weeks ago", "asked after it", "never"],
)
async def test_a_turn_from_before_an_erasure_stays_out_though_redis_has_forgotten_that(
    centre: Centre, since_s: float | None, generation: int, stored: bool
) -> None:
    """The edge's link was down, and its customer erased the conversation at the centre during the outage. The turn is
    of an earlier generation, for any clock of the edge."""
    erased_ms = int(now_unix_ms() - (since_s or 0) * 1_000)
    if since_s is not None:
        centre.gateway.erased(Erase(tenant="shop", session_id="s", generation=erased_ms))
    for ahead_ms in (-1, 600_000):
        turn = answered("r", min(erased_ms + ahead_ms, now_unix_ms()), generation * erased_ms)
        assert (await centre.add(Journalled(session_id="s", turn=turn))).status_code == 200
    assert bool(centre.history.kept) == stored


@pytest.mark.parametrize("corrected", [False, True], ids=["while it is wrong", "once it was set"])
@pytest.mark.parametrize("ahead_s", [-86_400, 0, 30, 86_400])
async def test_turns_of_an_edge_with_a_wrong_clock_get_the_centres_time(
    centre: Centre, ahead_s: int, *, corrected: bool
) -> None:
    """A turn of the future would be in no prompt, and one of yesterday before all of today's."""
    asked_ms = int(now_unix_ms()) - 3_600_000
    turn = answered("r", asked_ms + ahead_s * 1_000)
    clock = str(int(now_unix_ms()) + (0 if corrected else ahead_s * 1_000))
    assert (await centre.add(Journalled(session_id="s", turn=turn), **{CLOCK_HEADER: clock})).status_code == 200
    ((stored,),) = centre.history.kept.values()
    if corrected:
        assert asked_ms - 86_400_000 <= stored.asked_unix_ms <= now_unix_ms()
    else:
        assert stored.asked_unix_ms == pytest.approx(asked_ms, abs=60_000)


@pytest.mark.parametrize("clock", ["", "-1", "1e3", "NaN", "9" * 19])
async def test_an_unreadable_clock_of_an_edge_is_ignored(centre: Centre, clock: str) -> None:
    turn = answered("r", now_unix_ms() - 3_600_000)
    assert (await centre.add(Journalled(session_id="s", turn=turn), **{CLOCK_HEADER: clock})).status_code == 200
    assert centre.history.kept == {SessionKey("shop", "s"): [turn]}


async def test_a_turn_from_before_the_longest_outage_stays_out(centre: Centre) -> None:
    """It is unknown whether its conversation was erased."""
    turns = [answered("r", now_unix_ms() - ago_s * 1_000) for ago_s in (LONGEST_OUTAGE_S, 60)]
    with capture_logs() as lines:
        assert (await centre.add(*(Journalled(session_id="s", turn=turn) for turn in turns))).status_code == 200
    assert centre.history.kept == {SessionKey("shop", "s"): turns[1:]}
    assert [(line["event"], line["turns"]) for line in lines] == [("edge_turns_dropped", 1)]


@pytest.mark.parametrize(("method", "path"), [("GET", "/erasures"), ("POST", "/history")])
async def test_an_edge_waits_until_the_gateway_has_loaded_the_erasures(centre: Centre, method: str, path: str) -> None:
    """Else a gateway that has just started would store what was erased before."""
    centre.door.erasing.log.whole = False
    got = await centre.client.request(method, path, content=b"[]", headers=bearing())
    assert (got.status_code, got.json()["error"]["code"]) == (503, "history_unavailable")
    assert (await centre.get("/faq")).status_code == 200


async def test_erasures_are_served_to_edges_while_the_faq_is_not_signed(centre: Centre, tmp_path: Path) -> None:
    (tmp_path / "faq.json").write_text(json.dumps(NEW_YEAR))
    centre.door.faq = LiveFaq(FaqSettings(path=tmp_path / "faq.json"))
    centre.gateway.erased(Erase(tenant="shop", session_id="s", generation=3))
    assert (await centre.get("/faq")).status_code == 503
    assert (await centre.get("/erasures?after=0")).json()["erased"] == [{"session_id": "s", "generation": 3}]


async def test_a_gateway_without_a_signed_faq_serves_no_edge(centre: Centre) -> None:
    centre.door.signed = None
    for path in ("/faq", "/erasures"):
        assert (await centre.get(path)).json()["error"]["code"] == "edges_not_served"
    assert (await centre.add()).json()["error"]["code"] == "edges_not_served"


@pytest.mark.parametrize("known", [0, 95])
async def test_an_edges_erasure_is_made_once(centre: Centre, known: int) -> None:
    """An erasure that is sent again, or is older than one that Redis has forgotten, erases no later turn."""
    if known:
        centre.gateway.erased(Erase(tenant="shop", session_id="s", generation=known))
    for _ in range(2):
        assert (await centre.add(Journalled(session_id="s", erased=90))).status_code == 200
    assert centre.gateway.history.generations == ({} if known else {SessionKey("shop", "s"): 90})


@pytest.mark.parametrize("clock", [80, 95, 99_999], ids=["slow", "right", "fast"])
@pytest.mark.parametrize("knew", [False, True], ids=["apart", "in step"])
async def test_an_erasure_here_that_the_edge_did_not_know_takes_its_turns_too(
    centre: Centre, clock: int, *, knew: bool
) -> None:
    """Both sides erased the conversation; by a fast clock the edge's erasure was the later one."""
    centre.gateway.erased(Erase(tenant="shop", session_id="s", generation=90))
    begun = max(clock, 91) if knew else clock
    erasure = Journalled(session_id="s", erased=begun, before=90 if knew else 0, epoch="e", sequence=1)
    turn = Journalled(session_id="s", turn=answered("r", now_unix_ms(), begun))
    for _ in range(2):
        assert (await centre.add(erasure)).status_code == 200
        for key, generation in centre.gateway.history.generations.items():
            centre.gateway.erased(Erase(tenant=key.tenant, session_id=key.session_id, generation=generation))
    assert (await centre.add(turn)).status_code == 200
    assert bool(centre.history.kept) == knew
    known = begun if knew else max(begun, 90) + 1
    assert centre.gateway.history.generations == {SessionKey("shop", "s"): known}, "erased once"


async def test_an_edge_gets_its_tenants_erasures_or_a_gap(centre: Centre) -> None:
    apply, log = centre.gateway.gateway.erasing.apply, centre.door.erasing.log
    log.begin_at(5)
    first = (await centre.get("/erasures")).json()
    assert first == {"next": 5, "gap": False, "erased": []}
    apply(Erase(tenant="shop", session_id="s", generation=3), 5)
    apply(Erase(tenant="another", session_id="s", generation=4), 6)
    missed = (await centre.get("/erasures?after=5")).json()
    assert missed == {"next": 7, "gap": False, "erased": [{"session_id": "s", "generation": 3}]}
    assert (await centre.get("/erasures?after=4")).json()["gap"]
    for place in ("x", "-1", "9" * 19, "9" * 5_000, "1" + "%d9%a1"):
        assert (await centre.get(f"/erasures?after={place}")).status_code == 400
