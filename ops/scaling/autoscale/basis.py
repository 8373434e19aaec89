"""What a worker's capacity is simulated by, and whether that has changed. Pure."""

from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from shared.wire.messages import Bucket
from shared.wire.step_law import StepLaw
from shared.wire.topics import BUCKETS

_CHANGED: Final = 0.2  # a share by which workers or customers differ enough to be simulated again


class Basis(Struct, frozen=True, kw_only=True):
    """What a worker's capacity is simulated by, as it was observed. `parts` are the requests by bucket, 0 to 1 each."""

    law: StepLaw | None = None
    slots: int = 0
    parts: dict[Bucket, float] = {}

    def differs(self, other: "Basis") -> bool:
        """Return whether the capacity is another by as much as is worth a simulation."""
        if self.slots != other.slots or (self.law is None) != (other.law is None):
            return True
        shares = [abs(self.parts.get(bucket, 0.0) - other.parts.get(bucket, 0.0)) for bucket in BUCKETS]
        mine, theirs = ((astuple(each.law) if each.law else ()) for each in (self, other))
        relative = [abs(one - two) / max(one, two) for one, two in zip(mine, theirs, strict=True) if one or two]
        return max([*shares, *relative], default=0.0) > _CHANGED
