"""What a fault of the network does to a proxy, by the names and meanings of toxiproxy's toxics."""

from typing import Final

from tests.chaos.faults.schedule import Kind
from tests.chaos.hops.proxy import Proxy

LATENCY_S: Final = 0.05
BANDWIDTH_BYTES_PER_S: Final = 32_000.0
SLICE_BYTES: Final = 16
TOLD_LATE_S: Final = 1.0
SLOW_S: Final = 0.15


class Weather:
    """Of one proxy. `num_faults` so far."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.num_faults = 0

    def worsen(self, kind: Kind) -> None:
        """`LATENCY` each way, `BANDWIDTH` of each connection and direction, `SLICER` so many bytes at a time and
        `TIMEOUT`, nothing at all, hold until `clear`. `RESET` and `SLOW_CLOSE` are a matter of the moment; of a slow
        close it is in turn the server and its clients that are gone at once, and the other side is told late. A slow
        dependency is `LATENCY` of three times the length; of a partition nothing passes, or nothing in one direction
        (`PARTITION_OUT`: to the server), until `clear` lets it."""
        match kind:
            case Kind.LATENCY | Kind.SLOW_KAFKA | Kind.SLOW_REDIS:
                self.proxy.delay_s = LATENCY_S if kind is Kind.LATENCY else SLOW_S
            case Kind.BANDWIDTH:
                self.proxy.bytes_per_s = BANDWIDTH_BYTES_PER_S
            case Kind.SLICER:
                self.proxy.slice_bytes = SLICE_BYTES
            case Kind.TIMEOUT | Kind.PARTITION | Kind.PARTITION_OUT | Kind.PARTITION_IN:
                self.proxy.silence(to_server=kind is not Kind.PARTITION_IN, to_client=kind is not Kind.PARTITION_OUT)
            case Kind.RESET:
                self.proxy.reset()
            case Kind.SLOW_CLOSE:
                self.proxy.hang_up(on_server=self.num_faults % 2 == 0, told_late_s=TOLD_LATE_S)
            case _:
                raise AssertionError(f"{kind} is no matter of the network")
        self.num_faults += 1

    def clear(self, kind: Kind) -> None:
        """As it was. A silence ends with a reset: what was half open is noticed now. A partition ends without one: what
        was sent meanwhile and not given up comes late, as TCP has it."""
        self.proxy.delay_s, self.proxy.bytes_per_s, self.proxy.slice_bytes = 0.0, None, None
        if kind is Kind.TIMEOUT:
            self.proxy.reset()
        self.proxy.speak()
