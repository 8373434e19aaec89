"""The AI SDK's own client (`ai`, `@ai-sdk/react`), over HTTP and over its WebSocket, and the example's page."""

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Page, async_playwright, expect

from ops.stack.processes import free_port
from tests.browser.conftest import ARGS, chromium
from tests.support.system import CURSOR_SECRET, Service, System, eventually

TOKENS = 200
pytestmark = pytest.mark.system(
    worker__fake_decode_ms_per_step=20,
    worker__reply_interval_ms=0,
    limits__default_output_tokens=TOKENS,
    admission__enabled=False,
    gateway__cursor_secret_file=CURSOR_SECRET,
    promise__first_token_ms=10_000,
    promise__deadline_ms=20_000,
)
ROOT = Path(__file__).parents[3]
EXAMPLE = Path("examples") / "ai-sdk"
PAGES = ROOT / "tests" / "integration" / "support" / "ai_sdk_pages.mjs"
TRANSPORTS = pytest.mark.parametrize("transport", ["http", "websocket"])


def lines() -> list[str]:
    """Return the lines of docs/doors.md that the reader types."""
    page = (ROOT / "docs" / "doors.md").read_text().partition("## Vercel's AI SDK")[2]
    block = re.search(r"```bash\n(.*?)```", page, re.DOTALL)
    assert block is not None
    return block[1].splitlines()


@pytest_asyncio.fixture(scope="module")
async def example(doors: "list[Door]", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example from the repository, with its packages at their pinned versions."""
    if shutil.which("npm") is None:
        pytest.fail("npm is missing (Node 20.19 or newer, https://nodejs.org)", pytrace=False)
    place = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / EXAMPLE, place / EXAMPLE, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (place / ".run").mkdir()
    (place / ".run" / "demo.env").write_text(f"export AI_SDK_URL={doors[0].url}\n")
    install = await asyncio.create_subprocess_exec("bash", "-e", "-c", lines()[1], cwd=place)
    assert await install.wait() == 0
    return place


@dataclass
class Pages:
    """A Node process of chat pages; each request comes from one page."""

    process: asyncio.subprocess.Process
    told: list[dict[str, Any]] = field(default_factory=list)

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.told.append(json.loads(line))

    def begin(self, page: str, url: str, transport: str, chat: str, **request: Any) -> None:
        assert self.process.stdin is not None
        line = {"page": page, "url": url, "transport": transport, "chat": chat} | request
        self.process.stdin.write(json.dumps(line).encode() + b"\n")

    async def chars(self, page: str, least: int) -> None:
        await eventually(lambda: any(line.get("chars", 0) >= least for line in self.told if line["page"] == page))

    async def end(self, page: str) -> dict[str, Any]:
        def ends() -> list[dict[str, Any]]:
            return [line for line in self.told if line["page"] == page and "status" in line]

        await eventually(ends, limit_s=30)
        return ends()[0]

    async def ask(self, page: str, *where: str, **request: Any) -> dict[str, Any]:
        self.begin(page, *where, **request)
        return await self.end(page)


@pytest_asyncio.fixture
async def pages(example: Path) -> AsyncIterator[Pages]:
    node = shutil.which("node")
    assert node is not None
    pipe = asyncio.subprocess.PIPE
    arguments = ("--experimental-websocket", "--no-warnings", str(PAGES), str(example / EXAMPLE / "node_modules"))
    process = await asyncio.create_subprocess_exec(node, *arguments, stdin=pipe, stdout=pipe)
    pages = Pages(process)
    reading = asyncio.create_task(pages.read())
    yield pages
    process.kill()
    await process.wait()
    await reading


@dataclass(frozen=True)
class Door:
    service: Service
    url: str


async def opened(system: System, partition: int) -> Door:
    port = free_port()
    service = system.gateway(gateway__reply_partition=partition, gateway__http_port=port, gateway__hello_timeout_s=2)
    return Door(await service.ready(), f"http://127.0.0.1:{port}/ai-sdk/chat")


@pytest_asyncio.fixture(scope="module")
async def doors(system: System, gateway: Service) -> list[Door]:
    """Two gateways that can replace each other."""
    del gateway
    return [await opened(system, partition) for partition in (2, 3)]


@TRANSPORTS
async def test_a_question_is_answered_with_its_source(doors: list[Door], pages: Pages, transport: str) -> None:
    end = await pages.ask("p", doors[0].url, transport, f"chat-{transport}", ask="Tell me all of it")
    assert (end["status"], len(end["text"])) == ("ready", TOKENS)
    assert end["message"]["metadata"] == {"source": "model", "reason": "max_output_tokens", "model": "fake"}
    resumed = await pages.ask("q", doors[1].url, transport, f"chat-{transport}")
    assert (resumed["status"], resumed["text"]) == ("ready", end["text"]), "nothing runs"


@TRANSPORTS
async def test_a_killed_gateways_answer_is_resumed_at_the_other(
    system: System, doors: list[Door], pages: Pages, transport: str
) -> None:
    dying = await opened(system, 4)
    pages.begin("p", dying.url, transport, f"killed-{transport}", ask="Tell me all of it")
    await pages.chars("p", 50)
    dying.service.kill()
    cut = await pages.end("p")
    assert (cut["status"], 0 < len(cut["text"]) < TOKENS) == ("error", True)
    whole = await pages.ask("q", doors[0].url, transport, f"killed-{transport}")
    assert (whole["status"], len(whole["text"])) == ("ready", TOKENS)
    assert whole["message"]["id"] == cut["message"]["id"]
    assert whole["text"].startswith(cut["text"])


@TRANSPORTS
async def test_a_stop_after_a_resume_at_another_gateway_ends_the_answer(
    doors: list[Door], pages: Pages, worker: Service, transport: str
) -> None:
    chat = f"stopped-{transport}"
    pages.begin("p", doors[0].url, transport, chat, ask="Tell me all of it")
    await pages.chars("p", 20)
    before = len(worker.logged("answered", status="cancelled"))
    end = await pages.ask("q", doors[1].url, transport, chat, stopAt=40)
    assert (end["status"], 40 <= len(end["text"]) < TOKENS) == ("ready", True)
    await eventually(lambda: len(worker.logged("answered", status="cancelled")) == before + 1)
    async with httpx2.AsyncClient() as client:
        assert (await client.get(f"{doors[0].url}/{chat}/stream")).status_code == 204


@TRANSPORTS
@pytest.mark.parametrize(("words", "shown"), [(9_000, "tokens"), (20_000, "at most 65536 bytes|code 1009")])
async def test_a_refusal_is_shown(doors: list[Door], pages: Pages, transport: str, words: int, shown: str) -> None:
    end = await pages.ask("p", doors[0].url, transport, "long", ask="word " * words)
    assert (end["status"], bool(re.search(shown, end["error"]))) == ("error", True), end


@pytest_asyncio.fixture
async def page(example: Path, doors: list[Door]) -> AsyncIterator[Page]:
    """The example's page, served by the lines of docs/doors.md, in Chromium."""
    del doors
    process = await asyncio.create_subprocess_exec(
        *("bash", "-e", "-c", "\n".join([lines()[0], lines()[2]])),
        cwd=example,
        env={"PATH": os.environ["PATH"], "NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            while not (found := re.search(rb"http://localhost:\d+/", await process.stdout.readline())):
                pass
        async with async_playwright() as playwright, asyncio.timeout(90):
            browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGS)
            page = await browser.new_page()
            page.set_default_timeout(30_000)
            await page.goto(found[0].decode())
            yield page
            await browser.close()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        await process.wait()


async def test_the_examples_page_resumes_after_a_reload_and_stops(page: Page) -> None:
    answers = page.get_by_role("article", name="Answer")
    await page.get_by_label("Your question").fill("Tell me all of it")
    await page.get_by_role("button", name="Ask").click()
    await expect(answers).to_have_text(re.compile(r"\w{5,}"))
    await page.reload()
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await expect(answers).to_have_count(1)
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_role("button", name="Ask")).to_be_visible()
    assert len(await answers.inner_text()) < TOKENS
    await page.get_by_label("Your question").fill("And then?")
    await page.get_by_role("button", name="Ask").click()
    await expect(answers.nth(1)).to_contain_text("From: model")
