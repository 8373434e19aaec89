"""docs/channels.md: the lines that an operator types are gateway settings."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
BLOCKS = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "channels.md").read_text(), re.DOTALL)
SHOW = "from shared.settings import load_settings as s; c, h = s().chatwoot, s().handoff; print({})"


@pytest.mark.parametrize(
    ("block", "shown", "told"),
    [
        (BLOCKS[0], "c.url, c.token(), c.key()", "https://chat.example t b'x'"),
        (BLOCKS[1], "h.webhook_url, len(h.webhook_key())", "https://desk.example/replyline 32"),
    ],
)
def test_the_documented_lines_are_settings(tmp_path: Path, block: str, shown: str, told: str) -> None:
    """The command itself runs elsewhere (tests/integration)."""
    script = f'replyline() {{ test "$*" = "topics create"; }}\n{block}\n{sys.executable} -c "{SHOW.format(shown)}"'
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "BOT_TOKEN": "t", "BOT_SECRET": "x"}
    run = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == told
