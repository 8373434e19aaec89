"""The lanes that requests take: one for each part that a model version can play. Pure.

A lane has request topics and a consumer group of its own, and its workers serve the version that the registry's alias
of the same name points to. The champion's topics and group bear no lane in their names.
"""

from typing import Final, Literal, get_args

Lane = Literal["champion", "canary", "control", "light", "cpu", "shadow"]
LANES: Final[tuple[Lane, ...]] = get_args(Lane)
CHAMPION: Final = "champion"
SHADOW: Final = "shadow"
PASSED_ON: Final[tuple[Lane, ...]] = ("canary", "control", "light", "cpu")
"""The lanes whose requests the champion answers where they no longer do. Nobody waits for a shadow's answers."""
