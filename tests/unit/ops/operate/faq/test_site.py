"""`replyline faq read ADDRESS`: the pages of a site, by their links or by a sitemap."""

import gzip
import json
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from shared.faq.entries import read_entries
from tests.unit.ops.operate.faq.conftest import Answer, Read

START: Final = "https://shop.example/help/"
ENGLISH: Final = "We deliver to all countries of the EU, and the parcel is with you in three days."


def page(title: str, *links: str, text: str = "") -> str:
    named = " ".join(f'<a href="{link}">see</a>' for link in links)
    return (
        f"<title>{title} | Shop</title><h1>{title}</h1><p>{text or f'About {title}. {ENGLISH}'}</p><nav>{named}</nav>"
    )


def sitemap(*urls: str, kind: str = "url") -> Answer:
    root = {"url": "urlset", "sitemap": "sitemapindex"}[kind]
    listed = "".join(f"<{kind}><loc> {url} </loc><lastmod>2026-11-01</lastmod></{kind}>" for url in urls)
    xml = f'<?xml version="1.0"?><{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</{root}>'
    return 200, {"content-type": "application/xml"}, xml


def test_pages_below_the_address_are_read_by_their_links(
    read: Read, tmp_path: Path, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = serve(
        {
            START: page(
                "Help", "shipping#top", "/help/returns?x=1", "https://other.example/a", "/cart", "mailto:a@b.c"
            ),
            f"{START}shipping": page("Shipping", "deep/customs", ".", "javascript:void(0)", "http://[bad"),
            f"{START}returns?x=1": page("Returns", "shipping"),
            f"{START}deep/customs": page("Customs", "/help/", "gone", "old", "../über"),
            f"{START}%C3%BCber": page("About us"),
            f"{START}deep/old": (301, {"location": "/help/shipping"}, ""),
        }
    )
    assert read(START) == (0, ["Help", "Shipping", "Returns", "Customs", "About us"])
    assert [entry.url for entry in read_entries(tmp_path / "pages.json")] == [
        f"{START}{name}" for name in ("", "shipping", "returns?x=1", "deep/customs", "%C3%BCber")
    ]
    names = ("", "shipping", "returns?x=1", "deep/customs", "deep/gone", "deep/old", "%C3%BCber")
    assert set(asked) == {"https://shop.example/robots.txt", *(f"{START}{name}" for name in names)}
    assert f"left out: {START}deep/gone: has status 404\n" in capsys.readouterr().err


@pytest.mark.parametrize("packed", [False, True])
def test_a_sitemaps_pages_are_read_and_their_links_not_followed(read: Read, serve: Any, packed: bool) -> None:
    pages = sitemap(f"{START}shipping", f"{START}returns", "https://other.example/a")
    if packed:
        pages = 200, {"content-type": "application/gzip"}, gzip.compress(str(pages[2]).encode())
    serve(
        {
            "https://shop.example/sitemap.xml": sitemap("https://shop.example/pages.xml.gz", kind="sitemap"),
            "https://shop.example/pages.xml.gz": pages,
            f"{START}shipping": page("Shipping", "customs"),
            f"{START}returns": page("Returns"),
            f"{START}customs": page("Customs"),
        }
    )
    assert read("https://shop.example/sitemap.xml") == (0, ["Shipping", "Returns"])


@pytest.mark.parametrize(
    "rules",
    [
        "Disallow: /help/private",
        "Disallow: /*/private",
        "Disallow: /help/private/a$",
        "Disallow: /\nAllow: /help/\nDisallow: /help/p",
        "Crawl-delay: ²\nDisallow: /help/private",
    ],
)
def test_what_robots_txt_forbids_is_not_asked_for(read: Read, serve: Any, rules: str) -> None:
    asked = serve(
        {
            "https://shop.example/robots.txt": f"User-agent: *\n{rules}\n",
            START: page("Help", "private/a", "shipping"),
            f"{START}shipping": page("Shipping"),
            f"{START}private/a": page("Private"),
        }
    )
    assert read(START) == (0, ["Help", "Shipping"])
    assert f"{START}private/a" not in asked


def test_a_page_that_leads_to_a_forbidden_one_is_not_read(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = serve(
        {
            "https://shop.example/robots.txt": "User-agent: *\nDisallow: /help/private\n",
            START: '<base href="http://[">' + page("Help", f"{START}door"),
            f"{START}door": (302, {"location": "/help/private/a"}, ""),
            f"{START}private/a": page("Private"),
        }
    )
    assert read(START) == (0, ["Help"])
    assert f"{START}private/a" not in asked
    assert f"left out: {START}door: leads to a page that robots.txt forbids\n" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["https://us:secret@shop.example/help", "http://["])
def test_an_address_that_customers_may_not_see_is_refused(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    assert serve({}) == []
    assert read(address) == (2, [])
    (line,) = capsys.readouterr().err.splitlines()
    assert "secret" not in line


def test_an_address_is_of_the_host_however_it_is_written(
    read: Read, tmp_path: Path, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    links = ("https://SHOP.example:443/help/a", "b", "https://me:secret@shop.example/help/c", "d")
    serve(
        {
            START: page("Help", *links),
            f"{START}a": page("Shipping"),
            f"{START}b": (302, {"location": "https://Shop.example:443/help/returns"}, ""),
            f"{START}returns": page("Returns"),
            f"{START}d": (302, {"location": "https://me:secret@shop.example/help/a"}, ""),
        }
    )
    assert read("https://Shop.Example:443/help/") == (0, ["Help", "Shipping", "Returns"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"left out: {START}d: leads to an address with a user or a password"
    assert "secret" not in (tmp_path / "pages.json").read_text()


def test_an_endless_calendar_is_read_up_to_the_limit(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    days = {f"{START}{day}": page(f"Day number {day}", str(day + 1)) for day in range(100)}
    asked = serve({START: page("Help", "0"), **days})
    status, questions = read(START, "--most-pages", "5")
    assert (status, len(questions), len(asked)) == (0, 5, 6)
    assert f"left out: {START}: 1 page or more are not read; raise --most-pages\n" in capsys.readouterr().err


def test_a_site_and_a_folder_are_read_together(read: Read, tmp_path: Path, serve: Any) -> None:
    serve({START: page("Help")})
    (tmp_path / "hours.md").write_text("# Opening hours\n\nMonday to Friday, from nine to six o'clock.\n")
    assert read(str(tmp_path / "hours.md"), START) == (0, ["Opening hours", "Help"])


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (
            {"content-type": "text/html; charset=gbk"},
            page("Shipping", text="包裹三天送到，我们送到欧盟所有国家。").encode("gbk"),
        ),
        ({}, b'<meta charset="gbk">' + page("Shipping", text="包裹三天送到，我们送到欧盟所有国家。").encode("gbk")),
        ({"content-type": "text/markdown"}, "# Shipping\n\n包裹三天送到，我们送到欧盟所有国家。\n".encode()),
        (
            {"content-type": "application/json"},
            json.dumps({"title": "Shipping", "body": "包裹三天送到，我们送到欧盟所有国家。"}),
        ),
    ],
)
def test_a_page_is_read_in_its_own_characters(
    read: Read, tmp_path: Path, serve: Any, headers: dict[str, str], body: bytes
) -> None:
    serve({START: (200, headers, body)})
    assert read(START)[0] == 0
    assert "三天送到" in (tmp_path / "pages.json").read_text()


REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "no host": (
        {START: httpx2.ConnectError("Name or service not known")},
        "cannot be fetched: Name or service not known",
    ),
    "slow": ({START: httpx2.ReadTimeout("")}, "does not answer within 20 s"),
    "missing": ({START: (404, {}, "")}, "has status 404"),
    "a loop": ({START: (302, {"location": START}, "")}, "redirects more than 5 times"),
    "a picture": (
        {START: (200, {"content-type": "image/png"}, b"")},
        "is image/png, which is not read; save it as HTML, Markdown or CSV",
    ),
    "other XML": (
        {START: (200, {"content-type": "text/xml"}, "<rss/>")},
        "is XML, but no sitemap; name a page or a sitemap",
    ),
    "entities": (
        {START: (200, {"content-type": "text/xml"}, '<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;">]><x>&c;</x>')},
        "is XML, but no sitemap; name a page or a sitemap",
    ),
    "robots.txt is broken": (
        {START: page("Help"), "https://shop.example/robots.txt": (503, {}, "")},
        "https://shop.example/robots.txt has status 503, so nothing may be read; try later",
    ),
    "a malformed redirect": ({START: (302, {"location": "http://["}, "")}, "cannot be fetched: Invalid IPv6 URL"),
    "a redirect with a password": (
        {START: (302, {"location": "https://me:secret@shop.example/"}, "")},
        "leads to an address with a user or a password",
    ),
    "a terminal's sequence": (
        {START: (200, {"content-type": "\x1b[31mred"}, b"")},
        "is ?[31mred, which is not read; save it as HTML, Markdown or CSV",
    ),
    **{
        f"the characters {charset}": (
            {START: (200, {"content-type": f"text/html; charset={charset}"}, page("Help"))},
            f"is in {charset}, which is unknown; save it as UTF-8",
        )
        for charset in ("none", "punycode", "idna", "unicode_escape", "utf-7", "hex")
    },
    "robots.txt is too large": (
        {START: page("Help"), "https://shop.example/robots.txt": b"#" * (17 << 20)},
        "https://shop.example/robots.txt cannot be read: has more than 16 MiB; split it",
    ),
    "robots.txt forbids all": (
        {START: page("Help"), "https://shop.example/robots.txt": "User-agent: *\nDisallow: /\n"},
        "robots.txt forbids it; allow Replyline there, or save the pages in a folder",
    ),
}


@pytest.mark.parametrize(("answers", "why"), REFUSED.values(), ids=REFUSED)
def test_an_address_that_gives_no_page_is_refused_in_one_line(
    read: Read, serve: Any, capsys: pytest.CaptureFixture[str], answers: dict[str, Answer], why: str
) -> None:
    serve(answers)
    assert read(START) == (2, [])
    assert capsys.readouterr().err.splitlines() == [f"replyline: PAGES {START}: {why}"]


def test_a_login_page_is_left_out_by_its_address(read: Read, serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    serve(
        {
            START: page("Help", "account", "away", "big"),
            f"{START}account": "<form><input type=password></form>",
            f"{START}away": (302, {"location": "https://login.example/"}, ""),
            f"{START}big": b"x" * (17 << 20),
        }
    )
    assert read(START) == (0, ["Help"])
    assert sorted(capsys.readouterr().err.splitlines()) == [
        f"left out: {START}account: asks for a password; save the page that is behind it",
        f"left out: {START}away: leads to login.example",
        f"left out: {START}big: has more than 16 MiB; split it",
    ]
