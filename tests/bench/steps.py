"""The step of a question's journey that code belongs to: the room of the product, else the library."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_PRODUCT: Final = ("gateway", "shared", "workers")
_LIBRARIES: Final = "site-packages"
_STAND_INS: Final = ("fakeredis", "lupa", "greenlet")
_LOOPS: Final = ("shared/process/lifetime.py", "tests/world/virtual/loop.py")
"""They run every task."""
PYTHON: Final = "Python"
"""The standard library's step."""


@cache
def owner_of(file: str) -> str:
    """Return the room of a file (`gateway/session`), the name of a library, `Python` for its standard library, or
    "" for a stand-in of a service."""
    path = Path(file)
    if path.is_relative_to(ROOT) and _LIBRARIES not in path.parts:
        parts = path.relative_to(ROOT).parts
        return "/".join(parts[:-1][:2]) if parts[0] in _PRODUCT else ""
    if _LIBRARIES not in path.parts:
        return PYTHON
    name = path.parts[path.parts.index(_LIBRARIES) + 1].removesuffix(".py")
    return "" if name in _STAND_INS else name


def step_of(files: Iterable[str]) -> str:
    """Return the step of a call stack, from its innermost file: the first room of the product, for a library's own
    task the library, and "" for what a stand-in does."""
    library = ""
    for file in files:
        if file.endswith(_LOOPS):
            break
        owner = owner_of(file)
        if not owner or owner.partition("/")[0] in _PRODUCT:
            return owner
        if owner != PYTHON:
            library = owner
    return library or PYTHON
