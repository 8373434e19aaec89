"""Options that do not go together are refused, each by its name."""

from typing import Any

import pytest
import typer

from ops.scaling.autoscale.commands import run
from ops.scaling.autoscale.options import RunOptions


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"least": 5, "most": 2}, "--min 5: write at most --max 2"),
        ({"local": True, "deletion_cost": True}, "--local .* --deletion-cost"),
        ({"costs": "cpu", "carries": 0.7}, "--carries and --costs"),
        ({"buckets": "short,tiny"}, "--buckets short,tiny: 'tiny' is no bucket; write some of short,medium,long"),
        ({"buckets": "short,,"}, "--buckets short,,: '' is no bucket; write some of short,medium,long"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(typer.BadParameter, match=named):
        run(RunOptions(**options))
