"""Each package that is imported comes with Replyline or with an extra, and a missing one is named with its extra."""

import ast
import asyncio
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops import cli
from shared.process.extras import EXTRA_OF
from shared.process.lifetime import run_until_signal

ROOT = Path(__file__).parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = {"gateway", "ops", "shared", "tests", "workers", *sys.stdlib_module_names}
# The packages that install what is imported under another name.
INSTALLED_BY = {
    "cuda": "cuda-bindings",
    "google": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "hiredis": "redis",
    "jwt": "pyjwt",
    "markdown_it": "markdown-it-py",
    "ml_dtypes": "onnx",
    "modelopt": "nvidia-modelopt",
    "opentelemetry": "opentelemetry-sdk",
    "pynvml": "nvidia-ml-py",
    "pydantic": "pydantic-settings",
    "cryptography": "pyjwt",
    "stemmer": "pystemmer",
    "tensorrt": "tensorrt-cu13",
    "yaml": "pyyaml",
}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", line)[0].lower().replace("_", "-") for line in requirements}


def imported() -> Iterator[tuple[str, str]]:
    """Yield each module of the product and of ops with each package of others that it imports anywhere."""
    for folder in ("gateway", "workers", "shared", "ops"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found = set()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    found.add(node.module.split(".")[0])
            yield from ((str(path.relative_to(ROOT)), package) for package in sorted(found - OWN))


IMPORTED = list(imported())


@pytest.mark.parametrize(("module", "package"), IMPORTED)
def test_a_package_comes_with_replyline_or_with_the_extra_that_is_named(module: str, package: str) -> None:
    extra = EXTRA_OF.get(package)
    requirements = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    wanted = INSTALLED_BY.get(package.lower(), package.lower().replace("_", "-"))
    assert wanted in names(requirements), module


@pytest.mark.parametrize("package", sorted(EXTRA_OF.keys() & {package for _, package in IMPORTED}))
def test_a_missing_package_ends_a_command_and_a_process_with_the_line_to_type(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lack(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named '{package}.part'", name=f"{package}.part")

    async def serve(_stop: asyncio.Event) -> None:
        lack()

    monkeypatch.setattr(cli, "run_app", lack)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, run_until_signal(serve)) == (2, 2)
    line = f"replyline: {package} is not installed; run: pip install 'replyline[{EXTRA_OF[package]}]'\n"
    assert capsys.readouterr().err == 2 * line


def test_a_package_that_no_extra_installs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback says more than a wrong command."""

    def lack(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'gateway.absent'", name="gateway.absent")

    monkeypatch.setattr(cli, "run_app", lack)
    with pytest.raises(ModuleNotFoundError):
        cli.main()
