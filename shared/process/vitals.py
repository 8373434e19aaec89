"""Measure periodically how late a process's event loop runs, how busy the machine and its network are, and the load of
its GPUs, and publish the figures as metrics."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.process.clock import correction_ms, monotonic_s, observe_wall_clock
from shared.process.gpu import Gpu, Gpus
from shared.process.hardware import MachineUsage, read_machine
from shared.process.process_clock import NEAR_MS
from shared.process.threads import make_thread
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger

_DEVICES: Final = Path("/proc/net/dev")
_CLASS: Final = Path("/sys/class/net")
_LOOPBACK: Final = "lo"
_SENT_COLUMN: Final = 8
_BYTES_PER_MBIT: Final = 125_000


@dataclass(frozen=True, slots=True)
class Network:
    """Network bytes since boot over all devices but loopback, and the devices' speed in bytes a second each way; 0
    if unknown."""

    received_bytes: int
    sent_bytes: int
    speed_bytes: int


def parse_devices(text: str) -> dict[str, tuple[int, int]]:
    """Return each device's received and sent bytes from the text of /proc/net/dev.

    Raises:
        ValueError: the text has another format.
    """
    found: dict[str, tuple[int, int]] = {}
    for line in text.splitlines()[2:]:
        name, _, numbers = line.partition(":")
        columns = numbers.split()
        if len(columns) <= _SENT_COLUMN:
            raise ValueError(f"/proc/net/dev has {line!r}")
        found[name.strip()] = int(columns[0]), int(columns[_SENT_COLUMN])
    return found


def network_of(devices: Mapping[str, tuple[int, int]], mbit: Mapping[str, int]) -> Network:
    """Return the sum over hardware devices, which are those in `mbit`; without any, as in a container, over all but
    loopback."""
    ours = [name for name in devices if name in mbit] or [name for name in devices if name != _LOOPBACK]
    return Network(
        received_bytes=sum(devices[name][0] for name in ours),
        sent_bytes=sum(devices[name][1] for name in ours),
        speed_bytes=sum(max(0, mbit.get(name, 0)) for name in ours) * _BYTES_PER_MBIT,
    )


def read_network() -> Network | None:
    """Return the machine's figures; None if /proc does not exist or has another format."""
    try:
        devices = parse_devices(_DEVICES.read_text())
    except (OSError, ValueError):
        return None
    hardware = [name for name in devices if (_CLASS / name / "device").exists()]
    return network_of(devices, {name: _mbit(name) for name in hardware})


def _mbit(name: str) -> int:
    """Return a device's speed; 0 if it is down or does not report it, as many virtual devices."""
    try:
        return int((_CLASS / name / "speed").read_text())
    except (OSError, ValueError):
        return 0


log = get_logger()

_SLEEP_S: Final = 0.5
_HARDWARE_EVERY: Final = 20
_HARDWARE_S: Final = _HARDWARE_EVERY * _SLEEP_S


@dataclass(slots=True)
class Vitals:
    """Periodic measurements of one process. `gpus`: None for a process without a GPU."""

    gpus: Gpus | None = None
    _counted_cpu_s: dict[str, float] = field(default_factory=dict)
    _counted: Network | None = None

    def missing(self) -> str | None:
        """Return the line about the hardware for `/ready`; None if nothing is missing."""
        return self.gpus.lost if self.gpus is not None else None

    async def watch(self) -> None:
        """Watch until cancelled: event loop and clock twice a second, hardware every ten seconds.

        A hanging GPU driver blocks neither these nor the process's end.
        """
        await asyncio.gather(self._watch_process(), self._watch_gpus())

    async def _watch_process(self) -> None:
        while True:
            self._read_machine()
            for _ in range(_HARDWARE_EVERY):
                asleep = monotonic_s()
                await asyncio.sleep(_SLEEP_S)
                metrics.event_loop_lag.observe(max(0.0, monotonic_s() - asleep - _SLEEP_S))
                self._observe_clock()

    def _observe_clock(self) -> None:
        before_ms = correction_ms()
        observe_wall_clock()
        set_by_ms = correction_ms() - before_ms
        if abs(set_by_ms) >= NEAR_MS:
            log.warning(
                "clock_set", by_ms=set_by_ms, means=("times sent to other processes follow it; no deadline moves")
            )
        metrics.clock_set.set(correction_ms() / 1_000)

    def _read_machine(self) -> None:
        machine = read_machine()
        if machine is not None:
            self._count(machine)
        network = read_network()
        if network is not None:
            self._count_network(network)

    async def _watch_gpus(self) -> None:
        """Watch the GPUs. If a call hangs, wait for it without making another."""
        while self.gpus is not None:
            reading = _in_a_thread(self.gpus.read)
            done, _ = await asyncio.wait([reading], timeout=_HARDWARE_S)
            if not done:
                self.gpus.hangs(_HARDWARE_S)
            for gpu in await reading:
                _show(gpu)
            await asyncio.sleep(_HARDWARE_S)

    def _count(self, machine: MachineUsage) -> None:
        for mode, seconds in machine.cpu_s.items():
            # the first reading covers the time before this process; the kernel's `iowait` may decrease
            metrics.machine_cpu.labels(mode).inc(max(0.0, seconds - self._counted_cpu_s.get(mode, seconds)))
        self._counted_cpu_s = machine.cpu_s
        metrics.machine_memory.labels("total").set(machine.memory_total_bytes)
        metrics.machine_memory.labels("available").set(machine.memory_available_bytes)

    def _count_network(self, network: Network) -> None:
        before = self._counted or network  # the first reading covers the time before this process
        metrics.machine_network.labels("received").inc(max(0, network.received_bytes - before.received_bytes))
        metrics.machine_network.labels("sent").inc(max(0, network.sent_bytes - before.sent_bytes))
        metrics.machine_network_speed.set(network.speed_bytes)
        self._counted = network


def _in_a_thread(read: Callable[[], list[Gpu]]) -> "asyncio.Future[list[Gpu]]":
    """Read the GPUs in a separate thread, which may outlive the loop; the loop would wait for its own executor's
    threads."""
    loop = asyncio.get_running_loop()
    reading: asyncio.Future[list[Gpu]] = loop.create_future()

    def tell(found: list[Gpu] | Exception) -> None:
        if reading.done():
            return
        if isinstance(found, Exception):
            reading.set_exception(found)
        else:
            reading.set_result(found)

    def run() -> None:
        found: list[Gpu] | Exception
        try:
            found = read()
        except Exception as error:  # noqa: BLE001 - raised where the future is awaited
            found = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, found)

    make_thread(run, "nvml").start()
    return reading


def _show(gpu: Gpu) -> None:
    metrics.gpu_memory.labels(gpu.name, "total").set(gpu.memory_total_bytes)
    metrics.gpu_memory.labels(gpu.name, "used").set(gpu.memory_used_bytes)
    for gauge, value in (
        (metrics.gpu_utilization, gpu.utilization),
        (metrics.gpu_temperature, gpu.temperature_celsius),
    ):
        if value is not None:
            gauge.labels(gpu.name).set(value)
