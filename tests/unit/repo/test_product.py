"""Nothing is unpickled, no telemetry leaves the machine, and the lists of parts and figures are complete."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ops.model.prepare import prepare_model
from ops.operate.settings_list import written_page
from shared.process.extras import install_command
from tests.support.models.native_library import native_dir

ROOT = Path(__file__).parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
WATCHED = """
import json, sys
unpickled = []
sys.addaudithook(lambda event, args: unpickled.append(args) if event == "pickle.find_class" else None)
from shared.settings import Settings
from workers.engine import PrefillChunk, Sampling
from workers.engine.load_model import load_model
settings = Settings.model_validate(json.loads(sys.argv[1]))
engine = load_model(settings).engine
assert engine.prefill([PrefillChunk(slot=0, past=0, token_ids=[1, 2, 3], sampling=Sampling(temperature=0.0))])
engine.close()
print(len(unpickled))
import pathlib, pickle
pickle.loads(pickle.dumps(pathlib.Path))
print(len(unpickled))
"""
LOADS_A_GRAPH = """
import workers.engine.load_model
import onnxruntime
from onnx import TensorProto, helper

value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "graph", value[:1], value[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
onnxruntime.InferenceSession(model.SerializeToString())
"""


def run(*command: object, env: dict[str, str] | None = None, said_first: str | None = None) -> str:
    words = list(map(str, command))
    return subprocess.run(words, cwd=ROOT, env=env, input=said_first, capture_output=True, check=True, text=True).stdout


@pytest.mark.parametrize("engine", ["native", "onnx"])
def test_a_worker_unpickles_nothing_from_its_start_to_a_token(tmp_path: Path, tiny_source: Path, engine: str) -> None:
    """This holds for all calls: Python reports each class that is looked up for a pickle. The control comes last."""
    folder = prepare_model(tmp_path, "int8", source=tiny_source)
    worker = {"engine": engine, "max_length": 64, "slots": 1, "threads": 1, "native_dir": str(native_dir())}
    settings = {"model": {"dir": str(folder.path)}, "worker": worker}
    assert run(sys.executable, "-c", WATCHED, json.dumps(settings)).split() == ["0", "1"]


def test_onnx_runtime_keeps_no_identity_of_this_machine(tmp_path: Path) -> None:
    """It stores a device id under the home folder and then sends reports. CI's environment variables also disable it,
    so they are removed here."""
    run(sys.executable, "-c", LOADS_A_GRAPH, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert list(tmp_path.rglob("*")) == []


def test_what_to_type_for_an_optional_part_is_said_in_one_place_and_names_one_that_there_is() -> None:
    """The package itself is installed already, so that pip adds only the extra's packages."""
    assert install_command("tensorrt") == "pip install 'replyline[tensorrt]'"
    sources = [path for package in ("gateway", "ops", "shared", "workers") for path in (ROOT / package).rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    assert text.count("pip install 'replyline") == 1
    assert {"onnx", "torch", "tracing"} <= set(re.findall(r"install_command\([\"']([\w-]+)", text)) <= EXTRAS.keys()


@pytest.mark.parametrize("name", ["README.md", "docs/evaluation.md"])
def test_a_share_of_right_answers_comes_with_the_share_that_no_quote_gave(name: str) -> None:
    """Each table, and the README's row."""
    text = (ROOT / name).read_text()
    parts = text.splitlines() if name == "README.md" else re.split(r"\n(?!\|)", text)
    stated = [part for part in parts if re.search(r"\| right answers|\| English,? right", part)]
    assert stated
    assert [part for part in stated if "by an answer" not in part] == []


def test_what_is_compiled_is_kept_also_where_the_callers_python_writes_no_bytecode() -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    command = ("make", "--silent", "--file", "Makefile", "--file", "-", "environment")
    shown = run(*command, env=env, said_first="environment:\n\t@env\n")
    assert "PYTHONUNBUFFERED=1" in shown
    assert "PYTHONDONTWRITEBYTECODE" not in shown


def test_a_bench_loads_a_system_of_its_own_also_where_the_shell_has_read_a_demos_file(tmp_path: Path) -> None:
    replyline = tmp_path / "replyline"
    replyline.write_text('#!/bin/sh\necho "$@ of ${REPLYLINE_URL-its own}"\n')
    replyline.chmod(0o755)
    env = {"PATH": os.environ["PATH"]}  # of a make around it nothing
    recipe = run("make", "--dry-run", "bench", f"BIN={tmp_path}", "BENCH_ARGS=--rate 5", env=env)
    asked = run("sh", "-c", recipe.splitlines()[-1], env=env | {"REPLYLINE_URL": "ws://127.0.0.1:8080/ws"})
    assert asked == "bench --rate 5 of its own\n"


def test_the_journeys_names_stand_in_the_files_beside_them() -> None:
    """docs/journey.md: a name belongs to the file named last before it."""
    file = ""
    for name in re.findall(r"`([^`]+)`", (ROOT / "docs" / "journey.md").read_text()):
        if "/" in name:
            file = (ROOT / name).read_text()
        elif "." not in name:
            assert re.search(rf"(def|class) {name}\b", file), name


def test_the_page_of_settings_is_what_the_settings_say() -> None:
    """Else type: replyline settings --markdown > docs/settings.md."""
    assert (ROOT / "docs" / "settings.md").read_text() == written_page()
