"""Nobody else hears of what runs here."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
_LOADS_A_GRAPH = """
import workers.loading
import onnxruntime
from onnx import TensorProto, helper

value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "graph", value[:1], value[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
onnxruntime.InferenceSession(model.SerializeToString())
"""


def test_onnx_runtime_keeps_no_identity_of_this_machine(tmp_path: Path) -> None:
    """It begins with a device id under the home folder, and goes on with reports. CI's own variables silence it too, so
    they are left out."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _LOADS_A_GRAPH], cwd=ROOT, env=environment, check=True)
    assert list(tmp_path.rglob("*")) == []
