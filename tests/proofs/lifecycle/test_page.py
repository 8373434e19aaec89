"""docs/lifecycle.md's run is typed as it stands, block by block, into two shells: on the demo's own Kafka and Redis."""

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ops.stack.processes import free_port
from tests.support.shells import ROOT, shell

LIMIT_S: Final = 900.0
RUN: Final = ROOT / ".run"
MADE: Final = (
    *(RUN / name for name in ("worse", "hello.jsonl", "canary.log", "control.log", "rollout.log", "eval.log")),
    RUN / "status.txt",
    ROOT / ".models" / "smollm2-135m-instruct-worse-int8",
)


def blocks(section: str) -> list[str]:
    """Return the indented blocks of a section of the page that a reader types, in their order."""
    page = (ROOT / "docs" / "lifecycle.md").read_text()
    [text] = re.findall(rf"^## {section}\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    found = [re.sub("^    ", "", block, flags=re.MULTILINE) for block in re.findall(r"(?m)(?:^    .*\n)+", text)]
    return [block for block in found if not block.startswith("rollout ")]  # that is what the last one prints


@pytest.fixture
def tidy() -> Iterator[None]:
    """What the page makes in the checkout is not there before, and not after."""

    def remove() -> None:
        for path in MADE:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    remove()
    yield
    remove()


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.usefixtures("tidy")
async def test_a_reader_who_types_the_page_sees_the_worse_version_taken_back(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("REPLYLINE_")}
    env |= {"PORT": (port := str(free_port())), "REPLYLINE_MODEL__VERSIONS_DIR": str(tmp_path / "versions")}
    demo, *others = blocks("A run to repeat")
    async with (
        shell(tmp_path / "demo", env, limit_s=LIMIT_S) as first,
        shell(tmp_path / "reader", env, limit_s=LIMIT_S) as second,
    ):
        first.type(demo)
        await first.shows('"event": "ready"')
        for number, block in enumerate(others):
            second.type(f"{block.replace('demo.env', f'demo-{port}.env')}echo typed {number}\n")
            await second.shows(f"typed {number}\n")
        status = (RUN / "status.txt").read_text()
        assert "rolled_back: worse than its control" in status
        decided = [words[1] for line in status.splitlines() if len(words := line.split()) > 1]
        assert "ended" in decided  # the last decision: its numbers may take several lines
        second.type("replyline versions list; exit\n")
        assert await asyncio.wait_for(second.bash.wait(), 60) == 0
    screen = second.screen.read_text()
    assert "/dev/null" not in "".join(others)
    assert "Traceback" not in screen
    [champion] = re.findall(r"^.* shop +champion .*$", screen, re.MULTILINE)
    assert "passed" in champion
