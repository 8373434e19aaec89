"""A folder that is made once, of pinned files: it appears whole or not at all, and its `recipe` says of what."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ops.model.prepare import put_in_place, workshop_of

RECIPE_FILE: Final = "recipe"


def is_made_by(folder: Path, recipe: str) -> bool:
    """Whether it is there, and made by this recipe."""
    try:
        return (folder / RECIPE_FILE).read_text(encoding="ascii") == recipe
    except (OSError, ValueError):
        return False


def make(target: Path, recipe: str, fill: Callable[[Path], None]) -> Path:
    """Let `fill` write into a folder beside `target`, then put it in its place; nothing where that is made by `recipe`
    already. Returns `target`. What `fill` raises leaves nothing behind; what a killed process left goes with the next
    one."""
    if is_made_by(target, recipe):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with workshop_of(target) as workshop:
        fill(workshop.path)
        (workshop.path / RECIPE_FILE).write_text(recipe, encoding="ascii")
        put_in_place(workshop, target)
    return target
