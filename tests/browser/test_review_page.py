"""The page of `replyline faq review`, by keyboard, in a real browser."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from ops.operate.faq.entries import encode
from shared.faq.entries import read_entries
from tests.support.typed_pages import ALL, ROOT
from tests.unit.ops.operate.faq.test_review import LONG, entry

HOSTILE = '</textarea><img src=x onerror=alert(1)> & "quotes"'


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """Write a folder of pages; return the file to publish into."""
    (tmp_path / "pages").mkdir()
    for name, text in {"a": LONG.format(30), "b": LONG.format(14), "c": "All of c is here."}.items():
        (tmp_path / "pages" / f"{name}.md").write_text(f"# What about {name}?\n\n{text}\n")
    for name, days in {"d": 30, "e": 14}.items():
        (tmp_path / "pages" / f"{name}.md").write_text(f"# Refunds\n\nYou get it back within {days} days, in cash.\n")
    (tmp_path / "faq").mkdir()
    return tmp_path / "faq" / "pages.json"


def answers(into: Path) -> dict[str, str]:
    return {each.question: each.answer for each in read_entries(into)} if into.exists() else {}


@pytest_asyncio.fixture
async def address(tmp_path: Path, into: Path) -> AsyncIterator[str]:
    """Type the page's block; yield the address that it prints."""
    (block,) = (block for block in ALL if block.text.startswith("replyline faq read pages --out draft.json"))
    read, review = block.lines.strip().split("\n")
    env = os.environ | {"PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
    command = f"{read} > read.log && exec {review}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command), cwd=tmp_path, env=env, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    yield (await process.stdout.readline()).decode().strip()
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0


@pytest_asyncio.fixture
async def page(browser: Browser, address: str) -> AsyncIterator[Page]:
    context = await browser.new_context()
    page = await context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    await page.goto(address)
    yield page
    await context.close()
    assert [fault for fault in faults if not re.search("400|409", fault)] == []


async def test_entries_are_accepted_edited_and_dropped_by_keyboard(page: Page, into: Path) -> None:
    await expect(page.get_by_role("status")).to_have_text("3 entries, 3 open")
    await expect(page.locator("faq-entry li")).to_have_text(
        ['other figures than "What about b?"', 'other figures than "What about a?"']
    )
    await page.get_by_text("2 left out when the pages were read").click()
    await expect(page.locator("#reasons li")).to_have_text(
        [
            'd.md: "Refunds" has other figures on e.md; correct one of them',
            'e.md: "Refunds" has other figures on d.md; correct one of them',
        ]
    )
    await page.get_by_label("Answer").nth(1).fill("Mine, and no other.")
    await page.get_by_role("button", name="Drop: What about c?").press("Enter")
    await page.get_by_role("button", name="Accept: What about a?").press("Space")
    await expect(page.get_by_role("button", name="Accept: What about b?")).to_have_attribute("aria-pressed", "true")
    await page.get_by_role("button", name="Publish 3").press("Enter")
    await expect(page.get_by_role("status")).to_have_text("2 entries served. 3 entries, 0 open")
    assert answers(into) == {"What about a?": LONG.format(30), "What about b?": "Mine, and no other."}


async def test_a_text_that_cannot_be_served_is_named_and_stays_in_its_field(page: Page, into: Path) -> None:
    await page.get_by_label("Answer").nth(0).fill(HOSTILE)
    await page.get_by_role("button", name="Publish 1").click()
    await expect(page.get_by_role("alert")).to_contain_text("write plain text")
    await expect(page.get_by_label("Answer").nth(0)).to_have_value(HOSTILE)
    assert answers(into) == {}


def publish_beside(into: Path) -> None:
    into.write_bytes(encode([entry("other", question="What about the others?")]))


async def test_what_was_decided_stays_when_the_entries_change_meanwhile(page: Page, into: Path) -> None:
    await page.get_by_label("Answer").nth(1).fill("Mine, and no other.")
    await page.get_by_role("button", name="Drop: What about c?").click()
    publish_beside(into)
    await page.get_by_role("button", name="Publish 2").click()
    await expect(page.get_by_role("alert")).to_contain_text("look at what has changed, then publish again")
    await expect(page.get_by_label("Answer").nth(1)).to_have_value("Mine, and no other.")
    await page.get_by_role("button", name="Publish 2").click()
    await expect(page.get_by_role("status")).to_contain_text("2 entries served")
    assert answers(into) == {"What about the others?": "All of other is here.", "What about b?": "Mine, and no other."}


async def test_without_its_token_the_page_says_what_to_do(browser: Browser, address: str) -> None:
    page = await browser.new_page()
    await page.goto(address.partition("#")[0])
    await expect(page.get_by_role("alert")).to_contain_text("open the address that the command printed")
    await page.close()
