"""`replyline faq review`: what a person has to look at, what is published, and who may read and publish it."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from ops.operate.faq.entries import encode
from ops.operate.faq.review import Decided, Decision, apply, items_of
from ops.operate.faq.review_page import ReviewPage
from ops.operate.faq.state import key_of
from shared.errors import SettingsError
from shared.faq.entries import FaqEntry, read_entries

LONG: Final = "We take a parcel back in its box, and pay its price to the card that it was paid by, within {} days."


def entry(name: str, answer: str = "", **fields: Any) -> FaqEntry:
    fields = {"question": f"What about {name}?", "answer": answer or f"All of {name} is here.", **fields}
    url = f"https://shop.example/{name}"
    return FaqEntry(id=name, topic="shop", language="en", alternatives=(), url=url, **fields)


def accept(one: FaqEntry, **fields: Any) -> Decision:
    text = {"question": one.question, "answer": one.answer, "alternatives": one.alternatives, **fields}
    return Decision(key=key_of(one), verdict="accept", **text)


def drop(one: FaqEntry) -> Decision:
    return Decision(key=key_of(one), verdict="drop")


def states(learned: list[FaqEntry], served: list[FaqEntry], before: dict[str, Decided]) -> dict[str, str]:
    return {item.key.split()[0]: item.state for item in items_of(learned, served, before)}


def test_only_what_is_new_changed_or_gone_is_looked_at_again() -> None:
    learned = [entry(name) for name in ("kept", "edited", "dropped", "undecided")]
    decisions = [accept(learned[0]), accept(learned[1], answer="Mine."), drop(learned[2])]
    served, before = apply(learned, [], {}, decisions)
    assert [each.answer for each in served] == ["All of kept is here.", "Mine."]
    assert states(learned, served, before) == dict.fromkeys(("kept", "edited", "dropped"), "done") | {
        "undecided": "new"
    }
    now = [entry("kept", "Another text."), entry("dropped", "Another text."), entry("added")]
    assert states(now, served, before) == {"kept": "changed", "dropped": "new", "added": "new", "edited": "gone"}
    served, before = apply(now, served, before, [accept(served[1])])
    assert states(now, served, before)["edited"] == "done"
    assert [each.answer for each in served] == ["All of kept is here.", "Mine."]


def test_a_wording_that_a_person_added_stays_when_a_changed_page_is_accepted() -> None:
    served = [entry("kept", "Old.", also=("box",))]
    served[0] = msgspec.structs.replace(served[0], alternatives=("my own",))
    (item,) = items_of([entry("kept", "New.")], served, {})
    assert (item.state, item.served, item.alternatives) == ("changed", "Old.", ("my own",))
    (now,), _ = apply(
        [entry("kept", "New.")], served, {}, [accept(entry("kept", "New."), alternatives=item.alternatives)]
    )
    assert (now.answer, now.alternatives, now.also) == ("New.", ("my own",), ("box",))


def test_near_duplicates_and_other_figures_are_named() -> None:
    learned = [entry("a", LONG.format(30)), entry("b", LONG.format(30)), entry("c")]
    notes = {item.key: item.notes for item in items_of(learned, [entry("d", LONG.format(14))], {})}
    same = 'nearly the same as "What about {}?"'.format
    other = 'other figures than "What about d?"'
    assert notes == {"a en": (same("b"), other), "b en": (same("a"), other), "c en": ()}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["accept", "drop"]))))
def test_what_is_served_are_the_accepted_ones_and_the_undecided_as_they_were(decided: list[tuple[str, str]]) -> None:
    learned, served = [entry(name, "New.") for name in "abc"], [entry(name, "Old.") for name in "bcd"]
    decisions = [Decision(key=f"{name} en", verdict=verdict, answer="New.") for name, verdict in decided]  # type: ignore[arg-type]
    entries, before = apply(learned, served, {}, decisions)
    last = dict(decided)
    expected = dict.fromkeys("bcd", "Old.") | {name: "New." for name, verdict in last.items() if verdict == "accept"}
    for name in [name for name, verdict in last.items() if verdict == "drop"]:
        expected.pop(name, None)
    assert {each.id: each.answer for each in entries} == expected
    assert {key.split()[0]: each.verdict for key, each in before.items()} == last


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    draft, into = tmp_path / "draft.json", tmp_path / "faq" / "site.json"
    into.parent.mkdir()
    draft.write_bytes(encode([entry("a"), entry("b")]))
    into.write_bytes(encode([entry("b", "Old.")]))
    return draft, into


@pytest_asyncio.fixture
async def page(files: tuple[Path, Path]) -> AsyncIterator[ReviewPage]:
    page = ReviewPage(*files, 0)
    yield page
    page._socket.close()


class Client:
    """Asks the page as a browser that has its address."""

    def __init__(self, page: ReviewPage) -> None:
        self.page, self.token = page, page.address.partition("#")[2]
        self.headers = {"authorization": f"Bearer {self.token}", "origin": f"http://127.0.0.1:{page.port}"}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        base = f"http://127.0.0.1:{self.page.port}"
        sent = {name: value.encode("latin-1") for name, value in (self.headers | headers).items() if value}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.page.app), base_url=base) as client:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            return await client.request(method, path, content=content, headers=sent)

    async def publish(self, *decisions: Decision, **headers: str) -> httpx2.Response:
        version = (await self.ask("GET", "/entries")).json()["version"]
        body = {"version": version, "decisions": msgspec.to_builtins(decisions)}
        return await self.ask("POST", "/publish", body, **headers)


STRANGERS: Final[dict[str, tuple[dict[str, str], int]]] = {
    "no token": ({"authorization": ""}, 401),
    "another token": ({"authorization": "Bearer x"}, 401),
    "a token that is no ASCII": ({"authorization": "Bearer \u00e9"}, 401),
    "another page": ({"origin": "https://evil.example"}, 403),
    "a sandboxed page": ({"origin": "null"}, 403),
    "another port": ({"origin": "http://127.0.0.1:1"}, 403),
    "a name that was rebound": ({"host": "evil.example", "origin": ""}, 403),
    "a name that was rebound, with its origin": ({"host": "evil.example", "origin": "http://evil.example"}, 403),
}


@pytest.mark.parametrize(("headers", "status"), STRANGERS.values(), ids=STRANGERS)
async def test_no_other_page_reads_or_publishes(
    page: ReviewPage, files: tuple[Path, Path], headers: dict[str, str], status: int
) -> None:
    client, before = Client(page), files[1].read_bytes()
    for path, method in (("/entries", "GET"), ("/publish", "POST")):
        answer = await client.ask(method, path, {} if method == "POST" else None, **headers)
        assert answer.status_code == status
        assert set(answer.json()) == {"error"}
    assert (await client.publish(accept(entry("a")), **headers)).status_code == status
    assert files[1].read_bytes() == before
    rebound = await client.ask("GET", "/", host=headers.get("host", ""))
    assert rebound.status_code == (421 if "host" in headers else 200)
    assert client.token not in rebound.text
    assert "access-control-allow-origin" not in rebound.headers


async def test_the_files_of_the_page_forbid_frames_and_foreign_scripts(page: ReviewPage) -> None:
    for path, kind in (("/", "text/html"), ("/review.js", "text/javascript"), ("/review.css", "text/css")):
        answer = await Client(page).ask("GET", path, authorization="", origin="")
        assert answer.headers["content-type"].startswith(kind)
        assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert (await Client(page).ask("GET", "/review.py")).status_code == 404


async def test_what_is_accepted_edited_and_dropped_is_published(page: ReviewPage, files: tuple[Path, Path]) -> None:
    client = Client(page)
    shown = (await client.ask("GET", "/entries")).json()
    assert [(item["key"], item["state"], item["served"]) for item in shown["items"]] == [
        ("a en", "new", ""),
        ("b en", "changed", "Old."),
    ]
    answer = await client.publish(accept(entry("a"), answer=" Mine.\n", alternatives=("x?", " ")), drop(entry("b")))
    assert answer.json() == {"published": "1 entry"}
    (served,) = read_entries(files[1])
    assert (served.id, served.answer, served.alternatives, served.url) == ("a", "Mine.", ("x?",), entry("a").url)
    assert [item["state"] for item in (await client.ask("GET", "/entries")).json()["items"]] == ["done", "done"]


BAD: Final[dict[str, tuple[Any, int, str]]] = {
    "an old version": ({"version": "x", "decisions": []}, 409, "have changed since the page was loaded"),
    "no JSON": (b"{", 400, "truncated"),
    "no UTF-8": (b'{"version": "\xff"}', 400, ""),
    "a list": ([], 400, "Expected `object`"),
    "another verdict": ({"version": "x", "decisions": [{"key": "a", "verdict": "y"}]}, 400, "Invalid enum value"),
    "too much": (b" " * (33 << 20), 413, "more than 32 MiB; publish in parts"),
}


@pytest.mark.parametrize(("body", "status", "said"), BAD.values(), ids=BAD)
async def test_a_wrong_request_is_one_line_and_changes_nothing(
    page: ReviewPage, files: tuple[Path, Path], body: Any, status: int, said: str
) -> None:
    before = files[1].read_bytes()
    answer = await Client(page).ask("POST", "/publish", body)
    assert (answer.status_code, said in answer.json()["error"]) == (status, True)
    assert files[1].read_bytes() == before


@pytest.mark.parametrize(
    ("decisions", "said"),
    [
        ([accept(entry("a"), answer="")], "an empty text"),
        ([accept(entry("a"), answer="<b>Bold</b>")], "write plain text"),
        ([accept(entry("a"), question="What about b?")], 'both ask "What about b?"'),
        ([accept(entry("z"))], 'there is no entry "z en"; load the page again'),
        ([drop(entry("a")), drop(entry("b"))], "no entry would be left; accept one at least"),
    ],
)
async def test_a_text_that_cannot_be_served_is_one_line_and_nothing_is_published(
    page: ReviewPage, files: tuple[Path, Path], decisions: list[Decision], said: str
) -> None:
    before = files[1].read_bytes()
    answer = await Client(page).publish(*decisions)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert files[1].read_bytes() == before
    assert sorted(path.name for path in files[1].parent.iterdir()) == ["site.json"]


async def test_a_file_that_changes_meanwhile_is_not_overwritten(page: ReviewPage, files: tuple[Path, Path]) -> None:
    client = Client(page)
    version = (await client.ask("GET", "/entries")).json()["version"]
    files[1].write_bytes(encode([entry("c")]))
    body = {"version": version, "decisions": msgspec.to_builtins([accept(entry("a"))])}
    assert (await client.ask("POST", "/publish", body)).status_code == 409
    assert [each.id for each in read_entries(files[1])] == ["c"]


async def test_a_question_of_another_file_of_the_folder_is_not_published(
    page: ReviewPage, files: tuple[Path, Path]
) -> None:
    """The folder is served as a whole, and would be refused."""
    files[1].with_name("own.json").write_bytes(encode([entry("own", question="What about a?")]))
    before = files[1].read_bytes()
    answer = await Client(page).publish(accept(entry("a")))
    assert (answer.status_code, 'both ask "What about a?"' in answer.json()["error"]) == (400, True)
    assert files[1].read_bytes() == before


async def test_a_refused_text_names_the_file_to_publish_into(page: ReviewPage, files: tuple[Path, Path]) -> None:
    answer = await Client(page).publish(accept(entry("a"), answer=""))
    assert answer.json()["error"].startswith(f"FAQ file {files[1]}: entry")


def lose_draft(draft: Path, _: Path) -> None:
    draft.unlink()


def damage_draft(draft: Path, _: Path) -> None:
    draft.write_text("[{")


def damage_served(_: Path, into: Path) -> None:
    into.write_text("[{")


def damage_verdicts(_: Path, into: Path) -> None:
    into.with_name(f".{into.name}.review").write_text("{")


def replace_verdicts(_: Path, into: Path) -> None:
    into.with_name(f".{into.name}.review").mkdir()


@pytest.mark.parametrize("break_", [lose_draft, damage_draft, damage_served, damage_verdicts, replace_verdicts])
async def test_a_file_that_breaks_meanwhile_is_one_line(
    page: ReviewPage, files: tuple[Path, Path], break_: Callable[[Path, Path], None]
) -> None:
    client = Client(page)
    body = {"version": (await client.ask("GET", "/entries")).json()["version"], "decisions": []}
    break_(*files)
    for answer in (await client.ask("GET", "/entries"), await client.ask("POST", "/publish", body)):
        assert answer.status_code in {400, 500}
        assert any(str(file.parent) in answer.json()["error"] for file in files)


def test_a_browser_leaves_the_port_80_out(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """And asks before the server runs, since the address is printed before."""
    monkeypatch.setattr("ops.operate.faq.review_page._HTTP_PORT", 0)
    monkeypatch.setattr("socket.socket.getsockname", lambda _: ("127.0.0.1", 0))
    page = ReviewPage(*files, 0)
    request = Request({"type": "http", "headers": [(b"host", b"localhost")]})
    assert page._is_own_host(request)
    page._socket.close()


def test_wrong_arguments_are_one_line(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingsError, match="is the file to review; name the file that is served"):
        ReviewPage(files[0], files[0], 0)
    files[1].with_name(".site.json.review").write_text("x")
    with pytest.raises(SettingsError, match=r"\.site\.json\.review: is damaged; delete it"):
        ReviewPage(*files, 0)
    files[1].with_name(".site.json.review").unlink()
    page = ReviewPage(*files, 0)
    page._socket.listen()
    with pytest.raises(SettingsError, match=f"--port {page.port}: Address already in use; name another"):
        ReviewPage(*files, page.port)
    page._socket.close()
