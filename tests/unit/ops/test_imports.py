"""An operator's commands import no more than they need."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from shared.process.extras import EXTRA_OF

ROOT = Path(__file__).parents[3]


def test_the_commands_of_the_registry_import_at_most_3000_lines_of_ops() -> None:
    lines = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in closure("ops.lifecycle.versions.commands")
    }
    assert sum(lines.values()) <= 3_000, sorted(lines.items(), key=lambda item: -item[1])[:10]
    assert len(lines) > 10


def test_a_command_of_an_operator_imports_no_laboratory() -> None:
    """The laboratory's commands are there all the same: the list of all commands names them."""
    program = (
        "import sys; from typer.testing import CliRunner; from ops import cli; "
        "said = CliRunner().invoke(cli.app, sys.argv[1:], env={'COLUMNS': '200'}).stdout; "
        "print(any(name.startswith('ops.lab') for name in sys.modules), 'simulate' in said)"
    )
    for arguments, expected in (
        ("versions --help", "False False"),
        ("autoscale run --help", "False False"),
        ("--help", "True True"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", program, *arguments.split()], capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == expected, arguments


def test_the_command_line_needs_no_extra_but_ops() -> None:
    others = sorted({package for package, extra in EXTRA_OF.items() if extra != "ops"})
    program = (
        "import sys; sys.modules.update(dict.fromkeys(sys.argv[1:])); import ops.cli; "  # None: the import fails
        "print([name for name in sys.argv[1:] if sys.modules[name] is not None])"
    )
    ran = subprocess.run([sys.executable, "-c", program, *others], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def closure(module: str) -> set[Path]:
    """Return the files of ops that a module imports, itself included: directly, through others, or inside functions."""
    found: set[Path] = set()
    left = [module]
    while left:
        name = left.pop()
        base = ROOT.joinpath(*name.split("."))
        path = next((each for each in (base.with_suffix(".py"), base / "__init__.py") if each.is_file()), None)
        if path is not None and path not in found:
            found.add(path)
            left += imported(path)
    return found


def imported(path: Path) -> Iterator[str]:
    """Yield what a file imports from ops: each module, and each name in it, which may be a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("ops."):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("ops."))
