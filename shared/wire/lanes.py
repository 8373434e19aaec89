"""The lanes of requests: one for each alias that a model version can have. Pure.

A lane has its own request topics and consumer group, and its workers serve the version that the registry's alias of the
same name points to. The names of the champion's topics and group do not contain the lane.
"""

from typing import Final, Literal, get_args

Lane = Literal["champion", "canary", "control", "light", "cpu", "shadow"]
LANES: Final[tuple[Lane, ...]] = get_args(Lane)
CHAMPION: Final = "champion"
SHADOW: Final = "shadow"
PASSED_ON: Final[tuple[Lane, ...]] = ("canary", "control", "light", "cpu")
"""Lanes whose requests go to the champion if they have no workers. A shadow's answers have no readers, so its do
not."""
