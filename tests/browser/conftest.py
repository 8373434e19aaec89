"""A real Chromium against a scripted gateway. Without Chromium the tests fail and name the command that installs it."""

import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from tests.browser.pages import OpenChat
from tests.browser.scripted_gateway import ScriptedGateway

ARGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=15_000)  # a limit for failures; no test waits for it to pass


def chromium() -> str:
    """Return the browser's path."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if found is None:
        pytest.fail("no Chromium: `apt-get install chromium`, or name one in the variable CHROMIUM", pytrace=False)
    return found


@pytest_asyncio.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    async with ScriptedGateway().serve() as gateway:
        yield gateway


@pytest_asyncio.fixture
async def open_chat(browser: Browser, gateway: ScriptedGateway) -> AsyncIterator[OpenChat]:
    """Open a page (by default the gateway's own) and fail the test on any CSP violation or script error in it."""
    contexts = []
    faults: list[str] = []

    def note_console(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            faults.append(message.text)

    async def open_chat(url: str | None = None, **options: Any) -> Page:
        context = await browser.new_context(**({"locale": "en-GB", "reduced_motion": "reduce"} | options))
        contexts.append(context)
        page = await context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", note_console)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        await page.goto(url or gateway.origin)
        return page

    yield open_chat
    for context in contexts:
        await context.close()
    assert faults == []
