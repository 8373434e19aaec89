"""Readings of the machine, the GPUs and the event loop, and the metrics shown for them."""

import asyncio
import dataclasses
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from shared.process import vitals
from shared.process.gpu import Gpus, find_gpus, short_device, visible_devices
from shared.process.hardware import MachineUsage, parse_machine, usable_cores
from shared.process.vitals import Network, Vitals, network_of, parse_devices
from shared.telemetry.status import Readiness, status_page
from workers.building import open_gpus
from workers.engine.fake import FakeEngine

STAT = "cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 50 10 15 2000 25 3 3 4 45 5\nctxt 12345\n"
MEMINFO = "MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    4096 kB\nHugePages_Total:       0\n"


def shown(name: str, **labels: object) -> float | None:
    return REGISTRY.get_sample_value(name, {key: str(value) for key, value in labels.items()})


# --- /proc


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("max 100000", 32),
        ("400000 100000", 4),
        ("250000 100000", 3),
        ("50000 100000", 1),
        ("9900000 100000", 32),
        ("", 32),
    ],
)
def test_a_containers_limit_bounds_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)), raising=False)
    (tmp_path / "cpu.max").write_text(limit)
    assert usable_cores(tmp_path) == cores
    assert usable_cores(tmp_path / "none") == 32


def test_proc_files_are_parsed_in_the_kernels_format() -> None:
    """`user` already includes guest time; memory is in KiB."""
    assert parse_machine(STAT, MEMINFO, ticks_per_s=100) == MachineUsage(
        {"busy": 1.63, "idle": 40.0, "iowait": 0.5, "steal": 0.08}, 16_777_216, 4_194_304
    )


@pytest.mark.parametrize(
    ("stat", "meminfo", "said"),
    [
        ("", MEMINFO, "begins with ''"),
        ("cpu 1 2 3\n", MEMINFO, "3 numbers"),
        (STAT, "MemTotal: 1 kB\n", "MemAvailable"),
    ],
)
def test_an_unknown_format_is_refused_with_its_text(stat: str, meminfo: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_machine(stat, meminfo, ticks_per_s=100)


@given(st.lists(st.integers(0, 10**12), min_size=8, max_size=12))
def test_cpu_modes_add_up_to_the_whole_time(ticks: list[int]) -> None:
    """The sum of the modes equals the kernel's first eight columns."""
    machine = parse_machine("cpu " + " ".join(map(str, ticks)) + "\n", MEMINFO, ticks_per_s=100)
    assert sum(machine.cpu_s.values()) == pytest.approx(sum(ticks[:8]) / 100)


# --- NVML


class LostError(Exception):
    pass


class FakeNvml:
    """pynvml with two devices; the second is divided by MIG and reports no utilisation."""

    NVMLError = LostError
    NVML_TEMPERATURE_GPU = 0
    UUIDS = ("GPU-1a2b3c4d-00", "MIG-5e6f7a8b-11")

    def __init__(self, devices: int = 2) -> None:
        self.devices = devices
        self.lost: set[int] = set()

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's names
        if self.devices < 0:
            raise LostError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid not in self.UUIDS:
            raise LostError("Not Found")
        return self.UUIDS.index(uuid)

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return self.UUIDS[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        if handle in self.lost:
            raise LostError("GPU is lost")
        return SimpleNamespace(total=1_000, used=250 + handle)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if handle == 1:
            raise LostError("Not Supported")
        return SimpleNamespace(gpu=40, memory=10)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        assert sensor == self.NVML_TEMPERATURE_GPU
        return 60 + handle


def opened(nvml: FakeNvml) -> Gpus:
    gpus = Gpus.open(nvml)
    assert isinstance(gpus, Gpus)
    return gpus


def test_gpu_readings_are_converted_to_base_units() -> None:
    gpus = opened(FakeNvml())
    first, second = gpus.read()
    assert (first.memory_total_bytes, first.memory_used_bytes) == (1_000, 250)
    assert (first.utilization, first.temperature_celsius) == (0.4, 60.0)
    assert (second.utilization, second.temperature_celsius) == (None, 61.0)
    assert gpus.lost is None


@pytest.mark.parametrize(
    ("environ", "names", "short"),
    [
        ({}, (), ""),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ("1",), "GPU1"),
        (
            {"CUDA_VISIBLE_DEVICES": "MIG-5e6f7a8b-11", "NVIDIA_VISIBLE_DEVICES": "all"},
            ("MIG-5e6f7a8b-11",),
            "MIG-5e6f7a8b",
        ),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-1a2b3c4d-00"}, ("GPU-1a2b3c4d-00",), "GPU-1a2b3c4d"),
        ({"NVIDIA_VISIBLE_DEVICES": "3"}, (), ""),
        ({"CUDA_VISIBLE_DEVICES": "0, 1"}, ("0", "1"), ""),
    ],
)
def test_the_environment_names_the_devices_of_a_process(
    environ: dict[str, str], names: tuple[str, ...], short: str
) -> None:
    assert visible_devices(environ) == names
    assert short_device(environ) == short


@pytest.mark.parametrize(("device", "used"), [("MIG-5e6f7a8b-11", 251), ("0", 250)])
def test_only_the_devices_of_the_process_are_read(device: str, used: int) -> None:
    gpus = Gpus.open(FakeNvml(), (device,))
    assert isinstance(gpus, Gpus)
    assert [gpu.memory_used_bytes for gpu in gpus.read()] == [used]
    assert Gpus.open(FakeNvml(), ("GPU-gone",)) == "NVML does not start (Not Found)"


@pytest.mark.parametrize(
    ("devices", "why"), [(0, "NVML finds no GPU"), (-1, "NVML does not start (Driver Not Loaded)")]
)
def test_no_device_or_driver_gives_no_gpu_metrics(devices: int, why: str) -> None:
    assert Gpus.open(FakeNvml(devices)) == why


def test_a_missing_package_gives_no_gpu_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert find_gpus() == "nvidia-ml-py is not installed"


@pytest.mark.parametrize("name", ["torch", "tensorrt", "tensorrt-rtx", "of tomorrow"])
def test_gpus_are_read_for_every_engine_that_uses_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's name does not matter; engines without a GPU read none."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    on_gpu = dataclasses.replace(FakeEngine(num_slots=1, max_length=8).info, name=name, device="gpu")
    gpus = open_gpus(on_gpu)
    assert gpus is not None
    assert len(gpus.read()) == 2
    assert open_gpus(dataclasses.replace(on_gpu, device="cpu")) is None


def test_an_unwatched_gpu_is_logged_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    info = dataclasses.replace(FakeEngine(num_slots=1, max_length=8).info, name="torch", device="gpu")
    assert open_gpus(info) is None
    (line,) = capsys.readouterr().out.splitlines()
    assert "gpu_unwatched" in line
    assert "nvidia-ml-py is not installed" in line
    assert "pip install 'replyline[torch]'" in line


def test_a_lost_gpu_makes_its_process_unready_until_it_returns() -> None:
    nvml = FakeNvml()
    vitals = Vitals(opened(nvml))
    assert vitals.gpus is not None
    assert vitals.missing() is None
    nvml.lost = {1}
    assert [gpu.name for gpu in vitals.gpus.read()] == ["GPU-1a2b3c4d-00"]
    assert vitals.missing() == "GPU MIG-5e6f7a8b-11 does not answer: GPU is lost"
    nvml.lost = set()
    vitals.gpus.read()
    assert vitals.missing() is None


# --- the process


async def test_vitals_are_exported_while_they_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine and GPU metrics appear immediately, the event loop's after half a second."""
    corrections = [0]
    naps = shown("replyline_event_loop_lag_seconds_count") or 0
    monkeypatch.setattr(vitals, "observe_wall_clock", lambda: corrections.append(-60_000))
    monkeypatch.setattr(vitals, "correction_ms", lambda: corrections[-1])
    task = asyncio.create_task(Vitals(opened(FakeNvml())).watch())
    try:
        await asyncio.sleep(0)
        while (shown("replyline_event_loop_lag_seconds_count") or 0) == naps:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert shown("replyline_clock_set_seconds") == -60
    assert shown("replyline_gpu_memory_bytes", gpu="MIG-5e6f7a8b-11", state="used") == 251
    assert shown("replyline_gpu_utilization_ratio", gpu="GPU-1a2b3c4d-00") == 0.4
    assert shown("replyline_gpu_utilization_ratio", gpu="MIG-5e6f7a8b-11") is None
    available = shown("replyline_machine_memory_bytes", state="available")
    total = shown("replyline_machine_memory_bytes", state="total")
    assert available is not None
    assert total is not None
    assert 0 < available < total


def test_a_hanging_driver_delays_neither_the_clock_nor_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process does not wait for its thread at exit, unlike `asyncio.run` for its executor's threads."""
    answers, observed = threading.Event(), list[None]()
    nvml = FakeNvml()
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lambda _: answers.wait() and SimpleNamespace(total=8, used=4))
    monkeypatch.setattr(vitals, "_SLEEP_S", 0.01)
    monkeypatch.setattr(vitals, "_HARDWARE_S", 0.01)
    monkeypatch.setattr(vitals, "observe_wall_clock", lambda: observed.append(None))
    watched = Vitals(opened(nvml))

    async def watch_for_a_while() -> None:
        task = asyncio.create_task(watched.watch())
        async with asyncio.timeout(10):
            while len(observed) < 3 or watched.missing() is None:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        asyncio.run(watch_for_a_while())
        assert "NVML has not answered" in str(watched.missing())
    finally:
        answers.set()


def test_each_scrape_reports_the_checks_that_fail_now() -> None:
    """A removed check is no longer reported."""
    readiness = Readiness({"engine": lambda: "the model is loading"})
    status_page("/metrics", readiness)
    assert shown("replyline_ready", check="engine") == 0
    readiness.checks = {"kafka": lambda: None, "redis": lambda: "no Redis"}
    page = status_page("/metrics", readiness)
    assert page is not None
    assert b'replyline_ready{check="kafka"} 1.0' in page.body
    assert b'replyline_ready{check="redis"} 0.0' in page.body
    assert b'check="engine"' not in page.body


DEVICES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls
    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0
  eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0
  veth: 30 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0
"""


def test_only_hardware_network_devices_count_or_else_all_but_loopback() -> None:
    devices = parse_devices(DEVICES)
    assert devices == {"lo": (900, 900), "eth0": (100, 20), "veth": (30, 4)}
    assert network_of(devices, {"eth0": 1_000}) == Network(100, 20, 125_000_000)
    assert network_of(devices, {"eth0": -1}) == Network(100, 20, 0), "the device is down or reports no speed"
    assert network_of(devices, {}) == Network(130, 24, 0)
    with pytest.raises(ValueError, match="eth0"):
        parse_devices("a\nb\n  eth0: 1 2 3\n")
