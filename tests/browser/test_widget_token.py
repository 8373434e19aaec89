"""A page that identifies its customer by a token that is fresh at each connect and renewed before it expires."""

import time

import pytest
from playwright.async_api import Page, expect

from shared.wire.messages import SessionRefresh, SessionStart
from tests.browser.pages import OpenChat
from tests.browser.scripted_gateway import ScriptedGateway

TOKENS = "let n = 0; void (document.querySelector('replyline-chat').token = async () => `token-${++n}`)"
NO_TOKENS = "void (document.querySelector('replyline-chat').token = () => { throw new Error('signed out') })"


@pytest.fixture
def gateway(gateway: ScriptedGateway) -> ScriptedGateway:
    gateway.heartbeat_s = 3_600
    return gateway


async def reconnected(gateway: ScriptedGateway, page: Page, source: str) -> SessionStart:
    """Return the next `session.start`; the first connection is made before the page has a token source."""
    await expect(page.get_by_text("Connected")).to_be_visible()
    await page.evaluate(source)
    await page.clock.install()
    gateway.expires_at = int((time.time() + 1_000) * 1_000)
    await gateway.hang_up(4005)
    await expect(page.get_by_text("The connection dropped")).to_be_visible()
    await page.clock.fast_forward(5_000)
    return (await gateway.expect(SessionStart, 2))[1]


async def test_after_4005_the_page_is_asked_for_a_new_token(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    assert (await reconnected(gateway, page, TOKENS)).token == "token-1"
    assert gateway.starts[0].token is None


async def test_a_token_is_renewed_before_it_expires(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await reconnected(gateway, page, TOKENS)
    await expect(page.get_by_text("Connected")).to_be_visible()
    await page.clock.fast_forward(700_000)
    assert gateway.all(SessionRefresh) == []
    gateway.expires_at = int((time.time() + 3_000) * 1_000)
    await page.clock.fast_forward(150_000)
    assert [refresh.token for refresh in await gateway.expect(SessionRefresh)] == ["token-2"]
    assert len(gateway.starts) == 2


async def test_a_page_without_a_token_is_asked_again_later(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await page.evaluate(NO_TOKENS)
    await page.clock.install()
    await gateway.hang_up(4005)
    await expect(page.get_by_text("The connection dropped")).to_be_visible()
    await page.clock.fast_forward(60_000)
    assert len(gateway.starts) == 1
    await page.evaluate(TOKENS)
    await page.clock.fast_forward(60_000)
    assert (await gateway.expect(SessionStart, 2))[1].token == "token-1"
