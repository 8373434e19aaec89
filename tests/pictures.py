"""The pictures of the documentation, taken of a real browser: the README's page and terminal, in light and in dark, and
the ways to speak of docs/answers.md.

`make pictures` starts the demo on a free port, asks it, and writes docs/images/*.png;
`python -m tests.pictures answers` takes only the last one, without the demo.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright, expect
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from ops.model.embeddings import with_prepared_embeddings
from ops.operate.up import EmbeddedSystem
from ops.stack.processes import free_port
from shared.faq import FaqIndex
from shared.faq.answer_policy import SHOWN, AnswerPolicy, Ground
from shared.faq.embedder import Embedder
from shared.faq.speech.words import WaysOn
from shared.settings import load_settings
from shared.wire.outcome import Timings, Usage
from tests.browser.conftest import ARGS
from tests.browser.scripted_gateway import Script, ScriptedGateway

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
QUESTIONS: Final = ("How long do refunds take?", "Do you ship to Norway?")
COMMANDS: Final = ('replyline ask "How long do refunds take?"', 'replyline ask "Can I pay with seashells?"')
WAYS_TO_SPEAK: Final = ("How long do refunds take?", "Is the oak table FSC certified?", "shipping", "Are you vegan?")
ANSWERS_SIZE: Final = {"width": 940, "height": 1490}
PAGE_SIZE: Final = {"width": 1180, "height": 740}
COLUMNS: Final = 100
LIGHT: Final = TerminalTheme(
    (251, 250, 246),
    (36, 41, 47),
    [
        (36, 41, 47),
        (179, 29, 40),
        (17, 99, 41),
        (127, 78, 0),
        (9, 80, 174),
        (102, 57, 186),
        (27, 124, 131),
        (87, 96, 106),
    ],
)
THEMES: Final = {"light": LIGHT, "dark": SVG_EXPORT_THEME}


async def page_picture(browser: Browser, url: str, scheme: str) -> None:
    """Ask the page both questions and take its picture in one colour scheme."""
    context = await browser.new_context(
        viewport=PAGE_SIZE, color_scheme=scheme, locale="en-GB", reduced_motion="reduce", device_scale_factor=1.5
    )
    page = await context.new_page()
    await page.goto(url)
    for number, question in enumerate(QUESTIONS, start=1):
        await page.get_by_label("Your question").fill(question)
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".badge")).to_have_count(number, timeout=60_000)
    await page.mouse.move(0, 0)
    await page.screenshot(path=IMAGES / f"page-{scheme}.png")
    await context.close()


def answered(questions: Sequence[str]) -> dict[str, Script]:
    """Return what the answer policy says to each question about the packaged FAQ, without a model."""
    embed = Embedder.named_by(with_prepared_embeddings(load_settings()).faq)
    index, policy = FaqIndex.load(embed=embed), AnswerPolicy(languages=(), ways_on=WaysOn(handoff=True))
    scripts = {}
    for question in questions:
        found = index.find(question, k=SHOWN, vector=index.vector_of(question))
        decision = policy.decide(question, found.hits, found.parts)
        assert not isinstance(decision, Ground), "the policy has no model"
        answer = policy.reply(decision)
        scripts[question] = Script(
            deltas=(answer.text,), source=answer.source, grounding=answer.grounding, usage=Usage(), timings=Timings()
        )
    return scripts


async def answers_picture(browser: Browser) -> None:
    """Take a picture of an answer, a quote, a question back and "I don't know" in the widget's page."""
    async with ScriptedGateway().serve() as gateway:
        gateway.scripts |= answered(WAYS_TO_SPEAK)
        page = await browser.new_page(viewport=ANSWERS_SIZE, locale="en-GB", reduced_motion="reduce")
        await page.goto(gateway.origin)
        for number, question in enumerate(WAYS_TO_SPEAK, start=1):
            await page.get_by_label("Your question").fill(question)
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator(".badge")).to_have_count(number, timeout=60_000)
        await page.mouse.move(0, 0)
        await page.locator("replyline-chat").screenshot(path=IMAGES / "answers.png")
        await page.close()


def typed(url: str) -> str:
    """Return what a terminal shows of the commands, colours included."""
    program = str(Path(sys.executable).with_name("replyline"))
    env = os.environ | {"REPLYLINE_URL": url, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    shown = []
    for command in COMMANDS:
        arguments = [program, "ask", command.split('"')[1]]
        ran = subprocess.run(
            arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=True
        )
        shown.append(f"\x1b[1m$ {command}\x1b[0m\n{ran.stdout.strip()}\n")
    return "\n".join(shown)


async def terminal_picture(browser: Browser, shown: str, scheme: str) -> None:
    """Draw what the terminal showed in a theme's colours and take its picture."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown))
    html = console.export_html(theme=THEMES[scheme], inline_styles=True)
    rules = "body{margin:0;padding:22px 26px;display:inline-block;font-size:15px;line-height:1.45}pre{margin:0}"
    page = await browser.new_page(device_scale_factor=1.5)
    await page.set_content(html.replace("</head>", f"<style>{rules}</style></head>"))
    await page.locator("body").screenshot(path=IMAGES / f"terminal-{scheme}.png")
    await page.close()


async def demo_pictures(browser: Browser) -> None:
    """Start the demo and take the README's pictures. Raises `ServiceError` where it cannot start."""
    os.environ["REPLYLINE_GATEWAY__PORT"] = str(free_port())
    with EmbeddedSystem(with_prepared_embeddings(load_settings()), share_output=False) as system:
        addresses = await system.start()
        shown = await asyncio.to_thread(typed, addresses.ws)
        for scheme in ("light", "dark"):
            await page_picture(browser, addresses.page, scheme)
            await terminal_picture(browser, shown, scheme)


async def main() -> None:
    """Take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGS)
        await answers_picture(browser)
        if sys.argv[1:] != ["answers"]:
            await demo_pictures(browser)


def chromium() -> str:
    """Return the browser's path; exit with the command that installs one if it is missing."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if found is None:
        sys.exit("no Chromium: type `apt-get install chromium`, or name one in the variable CHROMIUM")
    return found


if __name__ == "__main__":
    asyncio.run(main())
