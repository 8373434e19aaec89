"""What a fault of the network does to a proxy, by the names and meanings of toxiproxy's toxics."""

from typing import Final

from ops.chaos.proxy import Proxy
from ops.chaos.schedule import Kind

LATENCY_S: Final = 0.05
BANDWIDTH_BYTES_PER_S: Final = 32_000.0
SLICE_BYTES: Final = 16
TOLD_LATE_S: Final = 1.0


class Weather:
    """Of one proxy. `num_faults` so far."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.num_faults = 0

    def worsen(self, kind: Kind) -> None:
        """`LATENCY` each way, `BANDWIDTH` of each connection and direction, `SLICER` so many bytes at a time and
        `TIMEOUT`, nothing at all, hold until `clear`. `RESET` and `SLOW_CLOSE` are a matter of the moment; of a slow
        close it is in turn the server and its clients that are gone at once, and the other side is told late."""
        match kind:
            case Kind.LATENCY:
                self.proxy.delay_s = LATENCY_S
            case Kind.BANDWIDTH:
                self.proxy.bytes_per_s = BANDWIDTH_BYTES_PER_S
            case Kind.SLICER:
                self.proxy.slice_bytes = SLICE_BYTES
            case Kind.TIMEOUT:
                self.proxy.silence(silent=True)
            case Kind.RESET:
                self.proxy.reset()
            case Kind.SLOW_CLOSE:
                self.proxy.hang_up(on_server=self.num_faults % 2 == 0, told_late_s=TOLD_LATE_S)
            case _:
                raise AssertionError(f"{kind} is no matter of the network")
        self.num_faults += 1

    def clear(self, kind: Kind) -> None:
        """As it was. A silence ends with a reset: what was half open is noticed now."""
        self.proxy.delay_s, self.proxy.bytes_per_s, self.proxy.slice_bytes = 0.0, None, None
        if kind is Kind.TIMEOUT:
            self.proxy.reset()
            self.proxy.silence(silent=False)
