"""The values of metrics' labels, read from the places in the code that set them.

An argument of `metrics.x.labels(…)` is a text, a choice between texts, a name assigned to one of these or a loop
variable over them, an error's code, or an expression annotated with a `Literal` or an enumeration: mypy keeps
annotations true. Any other argument has unknown values, and no value is collected.
"""

import ast
import builtins
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from shared.errors import ProtocolError
from shared.telemetry import metrics
from tests.support.samples.promql import name_of

ROOT = Path(__file__).parents[3]
SOURCES = [
    path
    for package in ("gateway", "workers", "shared", "ops/lifecycle/rollout")
    for path in sorted((ROOT / package).rglob("*.py"))
]
Values = frozenset[str]
NONE: Values = frozenset()


class Module:
    """A parsed module, with what encloses each part of it."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text())
        self._name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def evaluate(self, expr: ast.expr) -> Any:
        """Return the expression's value if it contains only the module's names, else None."""
        with suppress(NameError):
            return eval(ast.unparse(expr), dict(vars(importlib.import_module(self._name))))
        return None

    def values(self, expr: ast.expr) -> Values:
        """Return the texts that an expression may have; empty if they are unknown."""
        parts: Sequence[ast.expr] = ()
        match expr:
            case ast.Constant(value):
                return frozenset([str(value)])
            case ast.IfExp(body=one, orelse=other):
                parts = one, other
            case ast.Tuple(elts=parts) | ast.Call(func=ast.Name("str"), args=parts):
                pass
            case ast.Name():
                parts = tuple(self._bound(expr))
        return NONE.union(*map(self.values, parts)) or self._annotated(expr)

    def _annotated(self, expr: ast.expr) -> Values:
        match expr:
            case ast.Call(func=ast.Name("get_args"), args=[of]):
                return _values_of(self.evaluate(of))
            case ast.Attribute(value=of, attr="code") if self._type(of) is ProtocolError:
                return _error_codes()
        return _values_of(self._type(expr))

    def _bound(self, name: ast.Name) -> Iterator[ast.expr]:
        """Yield the expressions to which the loops, comprehensions and assignments around a name bind it."""
        for scope in self._around(name):
            inner = ast.walk(scope) if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) else (scope,)
            for node in inner:
                match node:
                    case ast.Assign(targets=[target], value=value):
                        yield from _given_to(name.id, target, value)
                    case ast.For(target=target, iter=ast.Tuple(elts=rows)):
                        for row in rows:
                            yield from _given_to(name.id, target, row)
                    case ast.GeneratorExp(generators=loops) | ast.DictComp(generators=loops):
                        for loop in loops:
                            yield from _given_to(name.id, loop.target, loop.iter)

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        while (node := self._parents.get(node, self.tree)) is not self.tree:
            yield node

    def _type(self, expr: ast.expr) -> Any:
        """Return the annotated type, or None without an annotation."""
        match expr:
            case ast.Attribute(value=of, attr=name):
                owner = self._type(of)
                return _hints_of(owner).get(name) if isinstance(owner, type) else None
            case ast.Call(func=ast.Attribute(value=of, attr=name)):
                method = getattr(self._type(of), name, None)
                return None if method is None else _hints_of(method).get("return")
            case ast.Subscript(value=of):
                return (get_args(self._type(of)) or (None,))[-1]
            case ast.Name():
                return self._type_of_name(expr)
        return None

    def _type_of_name(self, name: ast.Name) -> Any:
        for scope in self._around(name):
            if isinstance(scope, ast.ClassDef) and name.id == "self":
                return self.evaluate(ast.Name(scope.name))
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                for part in ast.walk(scope):
                    match part:
                        case (
                            ast.arg(arg=found, annotation=ast.expr() as annotation)
                            | ast.AnnAssign(target=ast.Name(found), annotation=annotation)
                            | ast.ExceptHandler(name=found, type=ast.expr() as annotation)
                        ) if found == name.id:
                            return self.evaluate(annotation)
                        case ast.Assign(targets=[ast.Name(found)], value=ast.Call() as value) if found == name.id:
                            return self._type(value)
        return None


def _given_to(name: str, target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    match target, value:
        case (ast.Name(found), _) if found == name:
            yield value
        case (ast.Tuple(elts=targets), ast.Tuple(elts=values)):
            for one, other in zip(targets, values, strict=False):
                yield from _given_to(name, one, other)


class _Names(dict[str, Any]):
    """A module's names; Any for one that it imports for type checkers only."""

    def __missing__(self, name: str) -> Any:
        return Any


def _hints_of(owner: Any) -> dict[str, Any]:
    try:
        return get_type_hints(owner)
    except NameError:
        return get_type_hints(owner, localns=_Names(vars(builtins) | vars(sys.modules[owner.__module__])))


def _values_of(kind: Any) -> Values:
    if isinstance(kind, type):
        return frozenset(map(str, kind)) if issubclass(kind, Enum) else NONE
    parts = get_args(kind)
    return frozenset(map(str, parts)) if get_origin(kind) is Literal else NONE.union(*map(_values_of, parts))


@cache
def _error_codes() -> Values:
    """Of all errors of the protocol that are made anywhere."""
    calls = (node for path in SOURCES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    made = (call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "ProtocolError")
    return frozenset(str(code.value) for code in made if isinstance(code, ast.Constant))


@cache
def sent() -> Mapping[str, Mapping[str, Values]]:
    """Return, by metric and label, the values that gateways and workers send. Values that are only initialised to 0 do
    not count."""
    found: dict[str, dict[str, Values]] = {}
    for path in SOURCES:
        text = path.read_text()
        if path != Path(metrics.__file__) and any(word in text for word in ("metrics.", "Readiness(", ".checks =")):
            for name, label, values in _set_in(Module(path)):
                of_metric = found.setdefault(name, {})
                of_metric[label] = of_metric.get(label, NONE) | values
    return found


def _set_in(module: Module) -> Iterator[tuple[str, str, Values]]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(ast.Attribute(ast.Name("metrics"), metric), "labels"), args=args):
                declared = getattr(metrics, metric)
                for label, arg in zip(declared._labelnames, args, strict=True):
                    yield name_of(declared), label, module.values(arg)
            case (
                ast.Call(func=ast.Name("Readiness"), args=[ast.Dict(keys=checks)])
                | ast.Assign(targets=[ast.Attribute(attr="checks")], value=ast.Dict(keys=checks))
            ):
                for check in checks:  # each is a separate series
                    assert isinstance(check, ast.Constant)
                    yield name_of(metrics.ready), "check", module.values(check)
