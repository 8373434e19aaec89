"""The known causes and remedies of a slow system. They are in `causes.yml`, for people to read and extend."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

_FILE: Final = Path(__file__).with_name("causes.yml")


class Cause(Struct, frozen=True, forbid_unknown_fields=True):
    """One known cause. `name` is that of its rule, `alerts` are the alerts that it triggers, `runbook` is a section
    under docs/runbooks."""

    name: str
    part: str
    symptom: str
    because: list[str]
    remedies: list[str]
    alerts: list[str]
    runbook: str


@cache
def causes() -> Mapping[str, Cause]:
    found = msgspec.yaml.decode(_FILE.read_bytes(), type=list[Cause])
    return {cause.name: cause for cause in found}
