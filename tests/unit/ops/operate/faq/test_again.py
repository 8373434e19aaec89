"""`replyline faq read ADDRESS` again: only what has changed is asked for, and the text of a page that fails stays."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from ops.operate.faq import reading, site
from shared.faq.entries import FaqEntry, read_entries
from tests.unit.ops.operate.faq.conftest import Answer, Given, Read
from tests.unit.ops.operate.faq.test_read import read as read_files
from tests.unit.ops.operate.faq.test_site import START, page, sitemap

ROBOTS: Final = "https://shop.example/robots.txt"
SITEMAP: Final = "https://shop.example/sitemap.xml"
RETURNS: Final = f"{START}returns"
NAMES: Final = ("returns", "shipping", "payment", "gifts", "sizes", "repairs", "stores", "jobs", "wool", "care")
LAST: Final = "its last good text stays"


def versioned(body: str, etag: str) -> Callable[[httpx2.Request], Given]:
    """Answer 304 to a client that has this version."""

    def answer(request: httpx2.Request) -> Given:
        if request.headers.get("if-none-match") == etag:
            return 304, {}, ""
        return 200, {"etag": etag, "last-modified": f"at {etag}"}, body

    return answer


def shop(**texts: str) -> dict[str, Answer]:
    """Return a site of eleven pages, some of them with these texts."""
    about = {name: f"All about the {name} that we have, in a house of {len(name)} rooms." for name in NAMES} | texts
    pages = {f"{START}{name}": versioned(page(name.title(), text=text), text[-40:]) for name, text in about.items()}
    return {START: page("Help", *NAMES), **pages}


@pytest.fixture
def entries(tmp_path: Path) -> Callable[[], dict[str, FaqEntry]]:
    """Return the entries that were written, by their questions."""
    return lambda: {entry.question: entry for entry in read_entries(tmp_path / "pages.json")}


FAILURES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a broken server": ({RETURNS: (503, {}, "")}, "has status 503"),
    "a refusal": ({RETURNS: (403, {}, "")}, "has status 403"),
    "no answer": ({RETURNS: httpx2.ReadTimeout("")}, "does not answer within 20 s"),
    "a login page": (
        {RETURNS: "<h1>Welcome</h1><form><input type=password></form>"},
        "asks for a password; save the page that is behind it",
    ),
    "a login page by a redirect": (
        {RETURNS: (302, {"location": "https://login.example/"}, "")},
        "leads to login.example",
    ),
    "a soft 404": ({RETURNS: "<title>Page not found</title><p>Oh no</p>"}, 'says "Page not found"'),
    "a soft 404 by a redirect": ({RETURNS: (302, {"location": START}, "")}, "leads to another page (1 of 3 times)"),
    "an empty body": ({RETURNS: ""}, "has no text of its own"),
    "a page of scripts": ({RETURNS: "<title>Returns</title><script>draw()</script>"}, "has no text of its own"),
    "wrong characters": (
        {RETURNS: (200, {"content-type": "text/html; charset=utf-8"}, b"<p>caf\xe9</p>")},
        f"is not utf-8, as it says, at byte 6 of {RETURNS}",
    ),
    "another kind": (
        {RETURNS: (200, {"content-type": "image/png"}, b"")},
        "is image/png, which is not read; save it as HTML, Markdown or CSV",
    ),
    "a missing page": ({RETURNS: (404, {}, "")}, "has status 404 (1 of 3 times)"),
    "a page that is gone": ({RETURNS: (410, {}, "")}, "has status 410 (1 of 3 times)"),
    "robots.txt": ({ROBOTS: "User-agent: *\nDisallow: /help/returns"}, "is now forbidden by robots.txt"),
    "a loop": ({RETURNS: (302, {"location": RETURNS}, "")}, "redirects more than 5 times"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_the_last_good_text_of_a_page_that_fails_stays(
    read: Read,
    serve: Any,
    entries: Callable[[], dict[str, FaqEntry]],
    capsys: pytest.CaptureFixture[str],
    failure: tuple[dict[str, Answer], str],
) -> None:
    (now, why), answers = failure, shop()
    serve(answers)
    assert read(START)[0] == 0
    before = entries()
    capsys.readouterr()
    answers.update(now)
    assert read(START)[0] == 0
    assert entries() == before
    printed = capsys.readouterr()
    assert printed.err == f"left out: {RETURNS}: {why}; {LAST}\n"
    assert printed.out.endswith("nothing has changed\n")


def test_one_text_on_many_pages_is_that_of_a_wall(
    read: Read, serve: Any, entries: Callable[[], dict[str, FaqEntry]], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = shop()
    serve(answers)
    assert read(START)[0] == 0
    before = entries()
    capsys.readouterr()
    wall = "<h1>We value your privacy</h1><p>Please accept all of our cookies before you read on.</p>"
    answers.update({f"{START}{name}": wall for name in NAMES[:4]})
    assert read(START)[0] == 0
    assert entries() == before
    assert capsys.readouterr().err.splitlines() == [
        f"left out: {START}{name}: has the text of 3 other pages, as an error page has; {LAST}" for name in NAMES[:4]
    ]


@pytest.mark.parametrize("now", [{START: httpx2.ConnectError("down")}, {ROBOTS: (503, {}, "")}, {START: (404, {}, "")}])
def test_a_site_that_is_away_changes_nothing(
    read: Read, serve: Any, entries: Callable[[], dict[str, FaqEntry]], now: dict[str, Answer]
) -> None:
    answers = shop()
    serve(answers)
    assert read(START)[0] == 0
    before = entries()
    answers.update(now)
    assert read(START)[0] == 2
    assert entries() == before


def test_a_page_is_withdrawn_when_it_is_missing_for_the_third_time_in_a_row(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = shop()
    there, away = answers[RETURNS], (404, {}, "")
    serve(answers)
    found = []
    for answer in (there, away, away, there, away, away, away, away):
        answers[RETURNS] = answer
        status, questions = read(START)
        assert status == 0
        found.append("Returns" in questions)
    assert found == [True] * 6 + [False] * 2
    printed = capsys.readouterr()
    assert printed.err.count(f"left out: {RETURNS}: has status 404, 3 times in a row; its entries are withdrawn\n") == 1
    assert printed.out.count('gone: "Returns"\n') == 1


def test_a_page_that_no_link_leads_to_any_more_is_asked_for(read: Read, serve: Any) -> None:
    answers = shop()
    asked = serve(answers)
    assert "Returns" in read(START)[1]
    answers[START] = page("Help", *NAMES[1:])
    asked.clear()
    assert "Returns" in read(START)[1]
    assert RETURNS in asked


@pytest.mark.parametrize("is_redirected", [False, True])
def test_a_page_that_moved_has_its_new_figures_and_its_ids(
    read: Read, serve: Any, entries: Callable[[], dict[str, FaqEntry]], is_redirected: bool
) -> None:
    answers = shop(returns="You may send it back within 30 days of the delivery.")
    serve(answers)
    assert read(START)[0] == 0
    before = entries()["Returns"]
    answers[START] = page("Help", "back", *NAMES[1:])
    answers[f"{START}back"] = page("Returns", text="You may send it back within 14 days of the delivery.")
    answers[RETURNS] = (301, {"location": f"{START}back"}, "") if is_redirected else (404, {}, "")
    assert read(START)[0] == 0
    now = entries()["Returns"]
    assert (now.id, now.url, "14 days" in now.answer) == (before.id, f"{START}back", True)


def test_a_calendar_whose_days_go_on_is_read_up_to_the_limit_each_time(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: dict[str, Answer] = {f"{START}{day}": page(f"Day number {day}", str(day + 1)) for day in range(99)}
    asked = serve(answers)
    found = []
    for today in (0, 2, 50):
        answers[START] = page("Help", str(today))
        asked.clear()
        status, questions = read(START, "--most-pages", "5")
        found.append(questions)
        assert (status, len(asked)) == (0, 6)
        assert f"left out: {START}: 1 page or more are not read; raise --most-pages\n" in capsys.readouterr().err
    assert found == [["Help", *(f"Day number {day}" for day in range(4))]] * 3


def test_what_has_not_changed_is_not_sent_again_and_the_file_is_not_touched(
    read: Read, serve: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = shop()
    sent = []

    def counted(answer: Callable[[httpx2.Request], Given]) -> Callable[[httpx2.Request], Given]:
        def count(request: httpx2.Request) -> Given:
            sent.append((found := answer(request))[0])
            return found

        return count

    serve({url: counted(answer) if callable(answer) else answer for url, answer in answers.items()})
    assert read(START)[0] == 0
    assert set(sent) == {200}
    inode = (tmp_path / "pages.json").stat().st_ino
    sent.clear()
    assert read(START)[0] == 0
    assert sent == [304] * len(NAMES)
    assert (tmp_path / "pages.json").stat().st_ino == inode
    assert capsys.readouterr().out.endswith("nothing has changed\n")


def test_a_page_is_not_asked_for_while_its_date_in_the_sitemap_stays_for_a_day(
    read: Read, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, Answer] = {SITEMAP: sitemap(RETURNS), RETURNS: page("Returns")}
    asked = serve(answers)
    assert read(SITEMAP) == (0, ["Returns"])
    asked.clear()
    answers[RETURNS] = page("Sent back")
    assert read(SITEMAP) == (0, ["Returns"])
    assert RETURNS not in asked
    now = time.time()
    for hours in (13, 23):
        monkeypatch.setattr(site.time, "time", lambda hours=hours: now + hours * 3600)
        assert read(SITEMAP) == (0, ["Returns"])
    monkeypatch.setattr(site.time, "time", lambda: now + 25 * 3600)
    assert read(SITEMAP) == (0, ["Sent back"])
    answers[RETURNS] = page("Send back")
    answers[SITEMAP] = (*sitemap(RETURNS)[:2], str(sitemap(RETURNS)[2]).replace("-11-", "-12-"))  # type: ignore[index]
    assert read(SITEMAP) == (0, ["Send back"])


def test_many_changes_are_held_back_until_a_person_accepts_them(
    read: Read, serve: Any, entries: Callable[[], dict[str, FaqEntry]], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = shop()
    serve(answers)
    assert read(START)[0] == 0
    before = entries()
    answers.update(shop(**{name: f"Another text about {name}, by another author." for name in NAMES[:4]}))
    for _ in range(2):
        capsys.readouterr()
        assert read(START)[0] == 2
        assert entries() == before
        printed = capsys.readouterr()
        assert printed.out.count("changed: ") == 4
        assert printed.err.endswith(
            "not written, since of 11 entries 4 would change and 0 would go; look at them, then add --accept\n"
        )
    assert read(START, "--accept")[0] == 0
    assert "another author" in entries()["Returns"].answer


def test_what_was_added_changed_and_is_gone_is_printed(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = shop(returns="One line that is long enough.<h2>Fees</h2><p>They are 4 euros a parcel.</p>")
    serve(answers)
    assert read(START)[0] == 0
    assert "added:" not in capsys.readouterr().out
    answers.update(shop(returns="Another line, as long as that.<h2>Time</h2><p>It takes a week or two.</p>"))
    assert read(START)[0] == 0
    assert capsys.readouterr().out.splitlines()[1:4] == [
        'added: "Returns – Time"',
        'changed: "Returns"',
        'gone: "Returns – Fees"',
    ]


def test_what_a_person_changed_stays_and_its_page_is_named_once_it_changes(
    read: Read, serve: Any, tmp_path: Path, entries: Callable[[], dict[str, FaqEntry]], capsys: Any
) -> None:
    answers, file = shop(), tmp_path / "pages.json"
    serve(answers)
    assert read(START)[0] == 0
    records = [each for each in json.loads(file.read_text()) if each["en"]["question"] != "Jobs"]
    mine = next(each for each in records if each["en"]["question"] == "Returns")
    mine["en"] |= {"question": "Can I return it?", "answer": "Yes, you can.", "alternatives": ["send back"]}
    file.write_text(json.dumps(records))
    capsys.readouterr()
    for text, line in (("", ""), ("You may send it back within 9 days.", f"left out: {RETURNS}: ")):
        answers.update(shop(returns=text) if text else {})
        assert read(START)[0] == 0
        entry = entries()["Can I return it?"]
        assert (entry.id, entry.answer, entry.alternatives) == (mine["id"], "Yes, you can.", ("send back",))
        assert "Jobs" not in entries()
        assert "Returns" not in entries()
        printed = capsys.readouterr().err
        assert "left out: the file: 1 entry that a person removed are not added again\n" in printed
        assert (line in printed) == bool(text) or not line
    assert f'{RETURNS}: "Can I return it?" has changed on its page; the text that a person gave it stays' in printed


def test_a_section_keeps_its_id_and_wordings_when_its_heading_changes(
    read: Read, serve: Any, tmp_path: Path, entries: Callable[[], dict[str, FaqEntry]]
) -> None:
    text = "You may send it back within 30 days of the delivery."
    answers, file = shop(returns=text), tmp_path / "pages.json"
    serve(answers)
    assert read(START)[0] == 0
    before = entries()["Returns"].id
    records = json.loads(file.read_text())
    next(each["en"] for each in records if each["id"] == before)["alternatives"] = ["take back"]
    file.write_text(json.dumps(records))
    answers[RETURNS] = page("Sending it back", text=text)
    assert read(START)[0] == 0
    now = entries()["Sending it back"]
    assert (now.id, now.alternatives) == (before, ("take back",))


def test_a_text_that_a_person_gave_stays_when_its_heading_changes(
    read: Read, serve: Any, tmp_path: Path, entries: Callable[[], dict[str, FaqEntry]]
) -> None:
    text = "You may send it back within 30 days of the delivery."
    answers, file = shop(returns=text), tmp_path / "pages.json"
    serve(answers)
    assert read(START)[0] == 0
    before = entries()["Returns"].id
    file.write_text(file.read_text().replace(text, "Yes, you may."))
    answers[RETURNS] = page("Sending it back", text=text)
    assert read(START)[0] == 0
    assert (entries()["Returns"].id, entries()["Returns"].answer) == (before, "Yes, you may.")
    assert "Sending it back" not in entries()


def test_a_reading_that_ended_before_the_faq_was_written_is_done_again(
    read: Read, serve: Any, entries: Callable[[], dict[str, FaqEntry]], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = shop()
    serve(answers)
    assert read(START)[0] == 0
    answers.update(shop(returns="One line that is long enough.<h2>Fees</h2><p>They are 4 euros a parcel.</p>"))
    replace, calls = Path.replace, []

    def die(self: Path, target: Path) -> Path:
        calls.append(target.name)
        if target.name == "pages.json":
            raise OSError("no space left")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        assert read(START)[0] == 1
    assert calls == [".pages.json.sync", "pages.json"]
    assert read(START)[0] == 0
    assert entries()["Returns"].answer.startswith("One line")
    assert "Returns – Fees" in entries()


def test_a_damaged_file_of_what_was_read_is_one_line(
    read: Read, serve: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(shop())
    assert read(START)[0] == 0
    (tmp_path / ".pages.json.sync").write_bytes(b"x" * 9)
    capsys.readouterr()
    assert read(START)[0] == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(".pages.json.sync: is damaged; delete it; the sites are then read whole")


def test_a_watch_reads_again_whatever_fails_until_sigint(
    read: Read, serve: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = shop()
    serve(answers)
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        answers[START] = httpx2.ConnectError("down") if len(waited) == 1 else page("Help", "new", *NAMES)
        answers[f"{START}new"] = page("New")
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(reading.time, "sleep", sleep)
    status, questions = read(START, "--watch", "5")
    assert (status, waited) == (0, [300] * 3)
    assert "New" in questions
    assert capsys.readouterr().err == f"replyline: PAGES {START}: cannot be fetched: down\n"


def test_the_pages_command_reads_a_site_again(
    serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entries: Callable[[], dict[str, FaqEntry]]
) -> None:
    text = (Path(__file__).parents[5] / "docs" / "production.md").read_text()
    (words,) = re.findall(r"^    replyline faq read (https:.* --watch .*)$", text, re.MULTILINE)
    serve(shop())
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(reading.time, "sleep", sleep)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faq").mkdir()
    assert read_files(monkeypatch, *words.split()) == 0
    assert waited == [900, 900]
    assert len(read_entries(tmp_path / "faq" / "site.json")) == 11
    assert f"`{Path('faq', '.site.json.sync')}`" in text
    assert (tmp_path / "faq" / ".site.json.sync").exists()


def test_a_watch_needs_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_files(monkeypatch, START, "--watch", "5") == 2
    assert capsys.readouterr().err == "replyline: --watch: name a file to write by --out\n"


PRIVATE: Final = ("127.0.0.1", "169.254.169.254", "10.0.0.8", "[::1]", "intranet.example")
SHORT: Final = ("127.1", "2130706433", "0", "0177.0.0.1", "10.1", "0x7f000001")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve these names, and addresses as the machine does."""
    hosts = {"shop.example": "93.184.215.14", "www.shop.example": "93.184.215.14", "intranet.example": "192.168.1.1"}
    resolve = socket.getaddrinfo
    monkeypatch.setattr(site.socket, "getaddrinfo", lambda host, port: resolve(hosts.get(host, host), port))


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("address", [*PRIVATE, *SHORT])
def test_no_public_site_leads_into_a_private_network(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    asked = serve(
        {
            START: (302, {"location": f"http://{address}/help"}, ""),
            f"{START}www": (302, {"location": "https://www.shop.example/help/"}, ""),
            "https://www.shop.example/help/": page("Help"),
        }
    )
    assert read(START) == (2, [])
    assert asked == [START]
    line = f"PAGES {START}: leads to {address.strip('[]')}, in a private network; name that itself"
    assert capsys.readouterr().err == f"replyline: {line}\n"
    assert read(f"{START}www") == (0, ["Help"])


def test_pages_that_all_lead_to_one_keep_their_texts(
    read: Read, serve: Any, entries: Callable[[], dict[str, FaqEntry]]
) -> None:
    """As a login page without a field for a password."""
    answers = shop()
    serve(answers)
    assert read(START)[0] == 0
    questions, wall = entries().keys(), f"{START}wall"
    answers |= dict.fromkeys(answers.keys() - {START}, (302, {"location": wall}, ""))
    answers[wall] = page("Sign in", text="Please sign in with your account, to see the pages of ours.")
    assert read(START)[0] == 0
    assert entries().keys() - {"Sign in"} == questions


def test_a_reading_that_is_ended_waits_for_no_page(serve: Any) -> None:
    ended, answered = threading.Event(), threading.Event()

    def slow(_: httpx2.Request) -> Given:
        ended.wait(60)
        answered.set()
        return page("Slow")

    serve({START: page("Help", "a", "slow"), f"{START}a": page("All of a"), f"{START}slow": slow})
    with closing(site.Site(START, 10, {}).fetch()) as pages:
        assert [next(pages).url, next(pages).url] == [START, f"{START}a"]
    assert not answered.is_set()
    ended.set()


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("address", [*PRIVATE, *SHORT])
def test_no_robots_txt_leads_into_a_private_network(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    robots = "https://shop.example/robots.txt"
    asked = serve({START: page("Help"), robots: (302, {"location": f"http://{address}/secret"}, "")})
    assert read(START) == (2, [])
    assert asked == [START, robots]
    assert f"{robots} cannot be read: leads to {address.strip('[]')}, in a private" in capsys.readouterr().err


@pytest.mark.usefixtures("names")
def test_a_robots_txt_on_another_host_is_obeyed(read: Read, serve: Any) -> None:
    other, rules = "https://www.shop.example/robots.txt", "User-agent: *\nDisallow: /help/b\n"
    moved = (302, {"location": other}, "")
    pages = {START: page("Help", "a", "b"), f"{START}a": page("All of a"), f"{START}b": page("All of b")}
    serve({**pages, "https://shop.example/robots.txt": moved, other: rules})
    assert read(START) == (0, ["Help", "All of a"])


def test_a_sitemaps_addresses_of_other_hosts_are_one_line(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    others = ("http://10.0.0.8/a", "https://me:secret@shop.example/b", *(f"http://h{n}.example/" for n in range(9)))
    asked = serve({SITEMAP: sitemap(RETURNS, *others), RETURNS: page("Returns")})
    assert read(SITEMAP) == (0, ["Returns"])
    assert set(asked) == {SITEMAP, ROBOTS, RETURNS}
    hosts = "10.0.0.8, h0.example, h1.example"
    line = f"lists 11 pages of other hosts, which are not read: {hosts}; name a sitemap of theirs"
    assert capsys.readouterr().err == f"left out: {SITEMAP}: {line}\n"
