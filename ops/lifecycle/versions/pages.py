"""The registry in rows and words."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import to_builtins

from ops.operate.letters import when
from shared.nouns import counted
from shared.versions.registry import Registry
from shared.versions.state import Move, Rule, State, named
from shared.versions.version import abbreviated
from shared.wire.fields import Revision

LISTED: Final = ("id", "name", "aliases", "model", "precision", "checked", "signed by", "added")
LOGGED: Final = ("epoch", "when", "author", "what", "reason", "numbers")


def version_rows(registry: Registry, now_unix_ms: float) -> list[list[str]]:
    """Return a row for each version, as `LISTED` titles them."""
    return [
        [
            abbreviated(revision),
            added.version.name,
            ",".join(_aliases(registry, revision, now_unix_ms)),
            added.version.model,
            added.version.card.precision,
            verdict(registry, revision),
            added.signed_by or "",
            when(added.version.added_unix_ms),
        ]
        for revision, added in registry.versions.items()
    ]


def verdict(registry: Registry, revision: Revision) -> str:
    """Return whether a version has passed its check, in a word."""
    check = registry.check(revision)
    if check is None:
        return "no"
    return "failed" if check.failures else "passed" if check.whole else "in part"


def version_page(registry: Registry, revision: Revision, now_unix_ms: float) -> dict[str, Any]:
    """Return all that the registry knows of a version."""
    added, check = registry.versions[revision], registry.check(revision)
    return {
        "id": revision,
        **to_builtins(added.version),
        "author": added.author,
        "signed_by": added.signed_by,
        "aliases": _aliases(registry, revision, now_unix_ms),
        "check": None if check is None else to_builtins(check),
    }


def _aliases(registry: Registry, revision: Revision, now_unix_ms: float) -> list[str]:
    """Return the aliases that point at a version now, and those that will once the move's time has come."""
    now, waiting = named(registry.state_at(now_unix_ms).aliases, revision), registry.waiting(now_unix_ms)
    then = [] if waiting is None else named(waiting.state.aliases, revision)
    return [*now, *(f"{alias} (waits)" for alias in then if alias not in now)]


def held(revision: Revision, loaded: Mapping[str, bool]) -> str:
    """Return in words which of the champion's live workers hold a version."""
    if not loaded:
        return f"no worker of champion lives: the first to start loads {revision}"
    holding = ", ".join(worker for worker, has in loaded.items() if has)
    lacking = ", ".join(worker for worker, has in loaded.items() if not has)
    holders = f"{sum(loaded.values())} of {counted(len(loaded), 'worker')} of champion"
    told = f"{revision} is loaded and served at once by {holders}"
    told += f": {holding}" if holding else ""
    return f"{told}; to be loaded first, the version before serves meanwhile: {lacking}" if lacking else told


def move_rows(registry: Registry) -> list[list[str]]:
    """Return a row for each move, as `LOGGED` titles them."""
    rows, before = [], State()
    for move in registry.moves:
        what = "; ".join(changes(before, move.state)) or "nothing"
        rows.append([str(move.epoch), when(move.unix_ms), move.author, what, move.reason, _numbers(move)])
        before = move.state
    return rows


def changes(before: State, after: State) -> Iterator[str]:
    """Yield what a move changes, in words."""
    yield from _moved("", before.aliases, after.aliases)
    yield from _moved("loading ", before.loading, after.loading)
    if before.rule != after.rule:
        yield f"rule {_rule(before.rule)} → {_rule(after.rule)}"
    if before.rung != after.rung:
        yield f"rung {before.rung or 'auto'} → {after.rung or 'auto'}"
    if before.shadow_share != after.shadow_share:
        yield f"shadow {before.shadow_share:g} → {after.shadow_share:g}"
    if after.effective_unix_ms:
        yield f"from {when(after.effective_unix_ms)} on"


def _moved(what: str, before: Mapping[Any, str], after: Mapping[Any, str]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield f"{what}{name} {abbreviated(before.get(name, '–'))} → {abbreviated(after.get(name, '–'))}"


def _rule(rule: Rule | None) -> str:
    return "none" if rule is None else f"{rule.share:.0%}{' with control' if rule.control else ''}"


def _numbers(move: Move) -> str:
    return " ".join(f"{name}={value:g}" for name, value in move.numbers.items())
