"""The commands of docs/lifecycle.md's registry are typed as they are, on a separate registry, with the fake engine."""

import asyncio
import os
from pathlib import Path

from ops.lifecycle.versions.writer import read_registry
from shared.settings.kafka import KafkaSettings
from shared.wire.lanes import CHAMPION
from tests.integration.commands.test_versions import QUESTIONS, kafka
from tests.support.builders.versions import write_folder
from tests.support.typed_pages import ALL, ROOT

__all__ = ["kafka"]
BLOCK = "docs/lifecycle.md: replyline versions add .models/smollm2-135m-shop-int8 --name shop-2"


async def test_the_registrys_commands_make_a_version_the_champion(kafka: KafkaSettings, tmp_path: Path) -> None:
    [block] = [each for each in ALL if each.key == BLOCK]
    write_folder(tmp_path / ".models" / "smollm2-135m-shop-int8")
    (tmp_path / "questions.jsonl").write_text(QUESTIONS)
    env = {name: value for name, value in os.environ.items() if not name.startswith("REPLYLINE_")} | {
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "REPLYLINE_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "REPLYLINE_MODEL__QUESTIONS": str(tmp_path / "questions.jsonl"),
        "REPLYLINE_WORKER__ENGINE": "fake",
    }
    bash = await asyncio.create_subprocess_exec(
        "bash",
        "-ec",
        block.text,
        cwd=tmp_path,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    screen = (await bash.communicate())[0].decode()
    assert bash.returncode == 0, screen
    registry = await read_registry(kafka)
    version = registry.find("shop-2")
    assert version is not None
    assert registry.state.aliases == {CHAMPION: version.id}
    assert "new return rules" in screen, "the log has the reason"
