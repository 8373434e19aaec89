"""No module reads by running what it reads."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "jsonpickle"}
FORBIDDEN_CALLS = {"torch.load", "np.load", "numpy.load", "joblib.load", "yaml.load", "pickle.load", "pickle.loads"}
CODE = sorted(path for package in ("gateway", "ops", "shared", "workers") for path in (ROOT / package).rglob("*.py"))


def dangers_in(source: str) -> set[str]:
    """What in a module reads by running: imports, calls, and `allow_pickle=True`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN_MODULES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FORBIDDEN_MODULES:
            found.add(node.module or "")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            literal = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if name in FORBIDDEN_CALLS and not _safe(node):
                found.add(name)
            if name in {"importlib.import_module", "__import__"} and FORBIDDEN_MODULES & set(map(str, literal)):
                found.add(name)
            if name in {"eval", "exec"}:
                found.add(name)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            found.add("allow_pickle")
    return found


def _safe(call: ast.Call) -> bool:
    """`torch.load(weights_only=True)` and `np.load(allow_pickle=False)` run nothing."""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return given.get("weights_only") == "True" or given.get("allow_pickle") == "False"


def test_no_module_reads_by_running_what_it_reads() -> None:
    assert len(CODE) > 100
    assert {str(path.relative_to(ROOT)): found for path in CODE if (found := dangers_in(path.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "def f():\n    import dill",
        "from joblib.numpy_pickle import load",
        "import marshal, json",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "np.lib.format.read_array(f, allow_pickle=flag)",
        "torch.load('x')",
        "torch.load('x', weights_only=False)",
        "importlib.import_module('pickle')",
        "__import__('shelve')",
        "eval(x)",
    ],
)
def test_such_a_reader_would_be_found(source: str) -> None:
    assert dangers_in(source)


WATCHED = """
import json, sys
unpickled = []
sys.addaudithook(lambda event, args: unpickled.append(args) if event == "pickle.find_class" else None)
from shared.settings import Settings
from workers.engine import PrefillChunk, Sampling
from workers.loading import load_model
settings = Settings.model_validate(json.loads(sys.argv[1]))
engine = load_model(settings).engine
assert engine.prefill([PrefillChunk(slot=0, past=0, token_ids=[1, 2, 3], sampling=Sampling(temperature=0.0))])
engine.close()
print(len(unpickled))
import pathlib, pickle
pickle.loads(pickle.dumps(pathlib.Path))
print(len(unpickled))
"""


def test_a_worker_unpickles_nothing_from_its_start_to_a_token(prepared: Path) -> None:
    """Whatever it calls: Python tells of each class that is looked up for a pickle. The control comes last."""
    settings = {"model": {"dir": str(prepared)}, "worker": {"max_length": 64, "slots": 1, "threads": 1}}
    said = subprocess.run(
        [sys.executable, "-c", WATCHED, json.dumps(settings)], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert said.stdout.split() == ["0", "1"]
