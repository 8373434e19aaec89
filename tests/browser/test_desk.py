"""The desk's page, next to a customer's, on real Kafka and Redis."""

import asyncio
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from ops.stack.processes import free_port
from tests.browser.pages import OpenChat
from tests.support.system import MakeSystem

SILENT = "Tell me a story"
AXE = Path(__file__).parents[2] / ".cache" / "typescript" / "node_modules" / "axe-core" / "axe.min.js"


async def violations(page: Page) -> list[str]:
    """Return what axe finds on a page, in light and dark."""
    assert AXE.exists(), "axe is missing. Type: ops/setup/typescript"
    found: list[str] = []
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.evaluate(AXE.read_text(encoding="utf-8"))
        told = await page.evaluate("axe.run()")
        found += [f"{scheme}: {each['id']}: {each['nodes'][0]['html'][:200]}" for each in told["violations"]]
    return found


async def system_of(new_system: MakeSystem, **settings: Any) -> tuple[str, str]:
    """Return the pages of the chat and of the desk."""
    system = await new_system()
    port = free_port()
    gateway = system.gateway(gateway__http_port=port, **settings)
    await asyncio.gather(gateway.ready(), system.worker().ready())
    return gateway.page, f"http://127.0.0.1:{port}/desk"


async def test_a_customer_asks_for_a_person_who_takes_answers_and_hands_back(
    new_system: MakeSystem, open_chat: OpenChat
) -> None:
    chat_url, desk_url = await system_of(new_system)
    customer, desk = await open_chat(chat_url), await open_chat(desk_url)
    assert await violations(desk) == []
    await desk.get_by_label("Your name").fill("Anna")
    await desk.keyboard.press("Enter")
    await expect(desk.get_by_role("status")).to_have_text("0 waiting, 0 taken")
    await customer.get_by_role("button", name="Talk to a person").click()
    await expect(desk.get_by_role("status")).to_have_text("1 waiting, 0 taken")
    await desk.keyboard.press("j")
    await desk.keyboard.press("t")
    reply = desk.get_by_label("Your reply")
    await expect(reply).to_be_focused()
    await expect(customer.get_by_text("Anna answers you now.")).to_be_visible()
    await customer.get_by_label("Your question").fill("Where is <b>my</b> parcel?")
    await customer.keyboard.press("Enter")
    log = desk.get_by_role("log", name="Conversation")
    await expect(log).to_contain_text("Where is <b>my</b> parcel?")
    await reply.fill("On its way.\nTomorrow.")
    await desk.keyboard.press("Control+Enter")
    await expect(customer.get_by_role("article", name="Anna")).to_contain_text("On its way.")
    await expect(reply).to_have_value("")
    assert (await violations(desk), await violations(customer)) == ([], [])
    await desk.keyboard.press("Escape")
    await expect(log).to_be_focused()
    await desk.keyboard.press("r")
    await expect(reply).to_be_focused()
    await desk.reload()
    await expect(desk.get_by_role("status")).to_have_text("0 waiting, 1 taken")
    await desk.keyboard.press("j")
    await expect(log).to_contain_text("On its way.")
    await desk.get_by_role("button", name="Hand back").click()
    await expect(customer.get_by_text("Anna has handed the chat back to the assistant.")).to_be_visible()
    await expect(desk.get_by_role("status")).to_have_text("0 waiting, 0 taken")
    await customer.get_by_label("Your question").fill(SILENT)
    await customer.keyboard.press("Enter")
    await expect(customer.get_by_role("article", name="Answer").last).to_contain_text("AI answer")


async def test_two_desks_see_who_has_a_conversation_and_the_loser_is_informed(
    new_system: MakeSystem, open_chat: OpenChat
) -> None:
    chat_url, desk_url = await system_of(new_system)
    customer, desks = await open_chat(chat_url), [await open_chat(desk_url), await open_chat(desk_url)]
    await customer.get_by_role("button", name="Talk to a person").click()
    for desk, name in zip(desks, ("Anna", "Bert"), strict=True):
        await desk.get_by_label("Your name").fill(name)
        await desk.keyboard.press("Enter")
        await expect(desk.get_by_role("status")).to_have_text("1 waiting, 0 taken")
        await desk.keyboard.press("j")
    anna, bert = desks
    await anna.keyboard.press("t")
    await expect(bert.get_by_text("with Anna")).to_be_visible()
    await expect(bert.get_by_label("Your reply")).to_be_hidden()
    await bert.get_by_role("button", name="Take").click()
    await expect(anna.get_by_label("Your reply")).to_be_hidden()
    await expect(customer.get_by_text("Bert answers you now.")).to_be_visible()
