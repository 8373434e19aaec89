"""What this machine can do at best, measured: the limits that engines are held against.

`python -m tests.bench.engines.limits --threads 2` prints one JSON line, `Limits` by device. On the CPU: bytes read a
second from an array that no cache holds; float32 products by numpy's BLAS and by ONNX Runtime, of which the faster
counts; 8-bit ones by ONNX Runtime; bfloat16 ones by torch, where it is installed. On a GPU: by its data sheet where it
is known, else copies and products by torch.
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import msgspec

from tests.bench.engines.roofline import Limits

CPU: Final = "cpu"
_THREAD_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_READ_BYTES: Final = 1 << 30
_SIZE: Final = 2_048  # of the square matrices
_SHAPES: Final = ((_SIZE, _SIZE), (_SIZE // 8, _SIZE // 2))  # rows of values, size of the matrix: the faster counts
_TIMES: Final = 3
# NVIDIA's data sheets: GB/s, then dense Tflop/s of fp16 and bf16 (with float32 sums). By a part of the name, the
# longer first.
_DATA_SHEETS: Final = {
    "H200": (4_800.0, 989.0),
    "H100 PCIe": (2_000.0, 756.0),
    "H100": (3_350.0, 989.0),
    "A100-SXM4-80GB": (2_039.0, 312.0),
    "A100": (1_555.0, 312.0),
    "L40S": (864.0, 362.0),
    "L4": (300.0, 121.0),
    "A10": (600.0, 125.0),
    "T4": (320.0, 65.0),
}


def cpu_limits(threads: int) -> Limits:
    """With so many threads, as the engines have."""
    measured = {
        "fp32": max(_numpy_gflop_s(), _onnx_gflop_s(threads, "fp32") or 0.0),
        "int8": _onnx_gflop_s(threads, "int8"),
        "bf16": _torch_gflop_s(CPU, threads),
    }
    rates = {precision: rate for precision, rate in measured.items() if rate is not None}
    return Limits(source=f"measured, {threads} threads", read_gb_s=_read_gb_s(threads), gflop_s=rates)


def data_sheet(name: str) -> Limits | None:
    """Of a GPU whose name is known."""
    for part, (gb_s, tflop_s) in _DATA_SHEETS.items():
        if part in name:
            rates = dict.fromkeys(("fp16", "bf16"), tflop_s * 1000)
            return Limits(source="NVIDIA's data sheet", read_gb_s=gb_s, gflop_s=rates)
    return None


def gpu_limits() -> dict[str, Limits]:
    """Of the first GPU, by its name; empty without one."""
    from tests.bench.engines.gpu_memory import gpu_name

    name = gpu_name()
    if name is None:
        return {}
    known = data_sheet(name)
    if known is None and _module("torch") is not None:
        rate = _torch_gflop_s("cuda", 1) or 0.0
        known = Limits(source="measured by torch", read_gb_s=_copy_gb_s(), gflop_s={"fp16": rate, "bf16": rate})
    return {name: known} if known is not None else {}


def _read_gb_s(threads: int) -> float:
    """Every thread goes through a part of its own, all at once."""
    import numpy as np

    values = np.ones(_READ_BYTES // 8, np.int64)
    parts = np.array_split(values, threads)
    with ThreadPoolExecutor(threads) as pool:
        seconds = _least_s(lambda: list(pool.map(np.bitwise_or.reduce, parts)))
    return round(values.nbytes / seconds / 1e9, 2)


def _numpy_gflop_s() -> float:
    import numpy as np

    matrix = np.ones((_SIZE, _SIZE), np.float32)
    return _rate(lambda: matrix @ matrix, _SIZE**3)


def _onnx_gflop_s(threads: int, precision: str) -> float | None:
    """float32, or unsigned by signed bytes, as the engine's 8-bit kernels multiply them."""
    onnxruntime, onnx = _module("onnxruntime"), _module("onnx")
    if onnxruntime is None or onnx is None:
        return None
    import numpy as np

    helper, kinds = onnx.helper, onnx.TensorProto
    operator, given, weights, result = {
        "fp32": ("MatMul", (np.float32, kinds.FLOAT), np.float32, kinds.FLOAT),
        "int8": ("MatMulInteger", (np.uint8, kinds.UINT8), np.int8, kinds.INT32),
    }[precision]
    rates: list[float] = []
    for rows, size in _SHAPES:
        graph = helper.make_graph(
            [helper.make_node(operator, ["a", "b"], ["c"])],
            "product",
            [helper.make_tensor_value_info("a", given[1], [rows, size])],
            [helper.make_tensor_value_info("c", result, [rows, size])],
            [onnx.numpy_helper.from_array(np.ones((size, size), weights), "b")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values = {"a": np.ones((rows, size), given[0])}
        rates.append(_rate(partial(session.run, None, values), rows * size**2))
    return max(rates)


def _torch_gflop_s(device: str, threads: int) -> float | None:
    torch = _module("torch")
    if torch is None:
        return None
    if device == CPU:
        torch.set_num_threads(threads)
    size = _SIZE if device == CPU else 4 * _SIZE
    matrix = torch.ones((size, size), dtype=torch.bfloat16, device=device)

    def multiply() -> None:
        matrix @ matrix
        if device != CPU:
            torch.cuda.synchronize()

    return _rate(multiply, size**3)


def _copy_gb_s() -> float:
    """A copy reads and writes."""
    torch: Any = _module("torch")
    source = torch.ones(_READ_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    return round(2 * _READ_BYTES / _least_s(copy) / 1e9, 2)


def _rate(multiply: Callable[[], object], products: int) -> float:
    """In 10⁹ multiplications and additions a second."""
    return round(2 * products / _least_s(multiply) / 1e9, 1)


def _least_s(work: Callable[[], object]) -> float:
    """A limit is what was reached at all; the first time only warms up."""
    work()
    times: list[float] = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description="the machine's limits")
    parser.add_argument("--threads", type=int, required=True)
    threads: int = parser.parse_args().threads
    for variable in _THREAD_VARIABLES:
        os.environ[variable] = str(threads)  # read when numpy's library is loaded, which is not yet
    sys.stdout.write(msgspec.json.encode({CPU: cpu_limits(threads), **gpu_limits()}).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
