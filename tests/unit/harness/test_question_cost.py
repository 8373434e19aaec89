"""What a question costs, by step: in Python calls, which no load changes, and in CPU, as the samples share it out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ops.stack.processes import ServiceError
from tests.bench import ledger
from tests.bench.steps import PYTHON, step_of
from tests.world import cost

ROOT = Path(__file__).parents[3]
LIBRARY = "/venv/lib/python3.11/site-packages"
LOOP = f"{ROOT}/tests/world/virtual/loop.py"


@pytest.mark.timeout(600)
def test_no_step_of_a_question_costs_a_tenth_more_calls_than_is_kept(tmp_path: Path) -> None:
    """Nor a tenth less: what was saved is kept too, by `python -m tests.world.cost --keep`."""
    file = tmp_path / "cost.json"
    command = [sys.executable, "-m", "tests.world.cost", "--keep", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert cost.changed(json.loads(cost.KEPT.read_text()), json.loads(file.read_text())) == []


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        ({"gateway/session": 109.0, "redis": 20.0}, 0),
        ({"gateway/session": 111.0, "redis": 20.0}, 1),
        ({"gateway/session": 89.0, "redis": 20.0}, 1),
        ({"gateway/session": 100.0, "redis": 24.0}, 0),
        ({"gateway/session": 100.0}, 1),
        ({"gateway/session": 100.0, "redis": 20.0, "shared/faq": 6.0}, 1),
        ({"gateway/session": 100.0, "redis": 20.0, PYTHON: 900.0}, 0),
    ],
)
def test_a_step_that_costs_a_tenth_more_or_less_is_named(after: dict[str, float], lines: int) -> None:
    kept = {"gateway": {"gateway/session": 100.0, "redis": 20.0}}
    assert len(cost.changed(kept, {"gateway": after})) == lines


@pytest.mark.parametrize(
    ("files", "step"),
    [
        ([f"{ROOT}/gateway/session/protocol.py", f"{ROOT}/gateway/frontends/sockets.py"], "gateway/session"),
        ([f"{LIBRARY}/redis/client.py", f"{ROOT}/shared/redis/client.py"], "shared/redis"),
        ([f"{ROOT}/gateway/doors/openai/bodies.py"], "gateway/doors"),
        ([f"{ROOT}/workers/process.py"], "workers"),
        (["/usr/lib/python3.11/asyncio/tasks.py", f"{LIBRARY}/aiokafka/client.py", LOOP], "aiokafka"),
        (["/usr/lib/python3.11/asyncio/tasks.py", LOOP, f"{ROOT}/tests/world/world.py"], PYTHON),
        ([f"{LIBRARY}/uvloop/__init__.py", f"{ROOT}/shared/process/lifetime.py"], "uvloop"),
        ([f"{LIBRARY}/fakeredis/_server.py", f"{ROOT}/shared/redis/client.py"], ""),
        ([f"{ROOT}/tests/world/redis.py", f"{ROOT}/shared/redis/client.py"], ""),
        ([f"{ROOT}/.venv/lib/python3.11/site-packages/msgspec/__init__.py"], "msgspec"),
        ([], PYTHON),
    ],
)
def test_a_call_belongs_to_the_innermost_room_of_the_product_else_to_the_library(files: list[str], step: str) -> None:
    assert step_of(files) == step


def test_a_processs_cpu_is_shared_out_by_its_samples() -> None:
    lines = [
        f"<module> ({ROOT}/gateway/__main__.py:9);send ({ROOT}/shared/redis/client.py:61) 3",
        f"<module> ({ROOT}/gateway/__main__.py:9);say ({ROOT}/gateway/session/protocol.py:4);f ({LIBRARY}/a.py:2) 1",
    ]
    assert ledger.shared_out(200.0, lines) == {"shared/redis": 150.0, "gateway/session": 50.0}
    assert ledger.shared_out(200.0, []) == {}


async def test_a_profile_without_its_sampler_names_the_command_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServiceError, match="Type: pip install py-spy"):
        async with ledger.Ledger({"gateway": 1}).sampled(1):
            raise AssertionError
