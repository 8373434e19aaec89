"""What to type for an optional part is said in one place, and names a part that there is."""

import re
import tomllib
from pathlib import Path

from shared.process.extras import install_command

ROOT = Path(__file__).parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SOURCES = [path for package in ("gateway", "ops", "shared", "workers") for path in (ROOT / package).rglob("*.py")]


def test_it_is_of_the_checkout() -> None:
    """No index has the package."""
    assert install_command("tensorrt") == ".venv/bin/pip install -e '.[tensorrt]'"


def test_no_module_has_words_of_its_own_for_it() -> None:
    texts = {path: path.read_text() for path in SOURCES}
    assert [path for path, text in texts.items() if "pip install 'replyline" in text] == []
    named = {name for text in texts.values() for name in re.findall(r"install_command\([\"']([\w-]+)[\"']\)", text)}
    assert {"onnx", "torch", "tracing"} <= named <= EXTRAS.keys()
