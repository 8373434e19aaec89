"""Which tests find something of which rows: read from their sources, so that no test is run in vain. Pure."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_FIXTURE: Final = "reliability"
_FOUND: Final = "found"
_FILE: Final = "test_"

Rows = set[str] | None
"""None: they cannot be read from the source, and may be any."""


@dataclass(frozen=True, slots=True)
class _Function:
    rows: Rows
    calls: set[str]


def finders(sources: Mapping[str, str]) -> dict[str, Rows]:
    """By a test's name as pytest has it (`tests/a.py::test_b`): the rows that it finds by `reliability.found(row, …)`,
    itself or in a function that it calls by name, in whichever source that stands. Tests that find none are left out.
    `sources` are by path."""
    functions = {path: _functions(source) for path, source in sources.items() if _FIXTURE in source}
    helpers = {name: function for of_file in functions.values() for name, function in of_file.items()}
    named = {
        f"{path}::{name}": _rows(function, helpers, set())
        for path, of_file in functions.items()
        if path.rpartition("/")[2].startswith(_FILE)
        for name, function in of_file.items()
        if name.startswith("test")
    }
    return {test: rows for test, rows in named.items() if rows is None or rows}


def _rows(function: _Function, helpers: Mapping[str, _Function], seen: set[str]) -> Rows:
    if function.rows is None:
        return None
    rows = set(function.rows)
    for name in function.calls & helpers.keys() - seen:
        called = _rows(helpers[name], helpers, seen | {name})
        if called is None:
            return None
        rows |= called
    return rows


def _functions(source: str) -> dict[str, _Function]:
    """The functions of a module, those alone that are handed the fixture."""
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    return {
        node.name: _function(node, constants)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _FIXTURE in _arguments(node.args)
    }


def _arguments(arguments: ast.arguments) -> Iterable[str]:
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _function(node: ast.AST, constants: Mapping[str, ast.expr | None]) -> _Function:
    rows: set[str] = set()
    calls: set[str] = set()
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name):
            calls.add(call.func.id)
        if not _finds(call.func):
            continue
        given: ast.expr | None = call.args[0] if call.args else None
        given = constants.get(given.id) if isinstance(given, ast.Name) else given
        if not (isinstance(given, ast.Constant) and isinstance(given.value, str)):
            return _Function(None, calls)
        rows.add(given.value)
    return _Function(rows, calls)


def _finds(called: ast.expr) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and called.attr == _FOUND
        and isinstance(called.value, ast.Name)
        and called.value.id == _FIXTURE
    )
