"""The packages that others install: the two clients, used as docs/protocol.md says, and the wheel of all processes."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import playwright
import pytest
import pytest_asyncio
from packaging.requirements import Requirement

from ops.stack.own_pages import open_page
from ops.stack.processes import Child, free_port
from shared.client import AsyncReplyline
from shared.wire.messages import ResponseCreate
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System, model_dir

pytestmark = STANDARD
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "protocol.md"
LONG = 600  # tokens: three seconds
NODE = Path(playwright.__file__).parent / "driver" / "node"  # newer than on most machines
TYPED = """
from replyline_client import AsyncReplyline, Replyline, Response, ResponseDelta

async def first_text(client: AsyncReplyline) -> str:
    async for event in client.ask("?"):
        if isinstance(event, ResponseDelta):
            return event.delta
    return ""

def whole(client: Replyline) -> Response:
    return client.answer("?")

number: int = Replyline("ws://127.0.0.1/ws").session
"""
TYPED_TS = """
import { ReplylineClient } from "replyline-client";
const client = new ReplylineClient({ url: "ws://127.0.0.1/ws" });
client.on("done", ({ response }) => { const source: "model" = response.source; });
client.create("?", { max_output_tokens: 5 });
"""


def run(*command: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=100)


@dataclass(frozen=True)
class Installed:
    """A package without this project; `program` is the example's, or what a test puts there instead."""

    language: str
    command: tuple[str, ...]
    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / self.command[-1]

    @asynccontextmanager
    async def asking(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *self.command,
            *arguments,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(60):
            yield process
            await process.wait()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    made = run("ops/setup/packages", folder)
    assert made.returncode == 0, made.stderr
    version, page = distribution("replyline").version, PAGE.read_text()
    for name in (f"replyline_client-{version}-py3-none-any.whl", f"replyline-client-{version}.tgz"):
        assert (folder / name).exists()
        assert f"dist/{name}`" in page
    return folder


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A new environment with the wheel's requirements and no index to download from."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in ("msgspec", "websockets"):
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), site / file)
    interpreter = folder / "bin" / "python"
    (wheel,) = built.glob("replyline_client-*.whl")
    done = run(sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet", "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    shutil.copy(ROOT / "examples" / "ask.py", folder)
    return Installed("python", (str(interpreter), "-I", "ask.py"), folder)


@pytest.fixture(scope="module")
def node(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("node")
    (package,) = built.glob("*.tgz")
    done = run("npm", "install", "--offline", "--no-audit", "--no-fund", "--prefix", folder, package)
    assert done.returncode == 0, done.stderr
    shutil.copy(ROOT / "examples" / "client.mjs", folder)
    return Installed("js", (str(NODE), "client.mjs"), folder)


@pytest.fixture(params=["python", "node"])
def installed(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest_asyncio.fixture(scope="module")
async def talkative(system: System) -> Service:
    """A gateway with long answers, so that another one is killed in time."""
    return await system.gateway(gateway__reply_partition=3, limits__default_output_tokens=LONG).ready()


async def test_an_answer_resumes_at_another_gateway_when_its_own_is_killed(
    system: System, talkative: Service, worker: Service, installed: Installed
) -> None:
    """Each character is printed once, and the answer is computed once."""
    doomed = await system.gateway(gateway__reply_partition=2, limits__default_output_tokens=LONG).ready()
    before = await worker.metric("infer_total")
    async with installed.asking("Tell me all of it", doomed.ws, talkative.ws) as process:
        assert process.stdout is not None
        begun = await process.stdout.readexactly(20)
        assert await worker.metric("infer_total") == before, "the answer has not ended"
        doomed.kill()
        text, end = (begun + await process.stdout.read()).decode().strip().rsplit("\n", 1)
    assert process.returncode == 0
    assert end in {"completed from model", "incomplete from model"}
    async with installed.asking("Tell me all of it", talkative.ws) as process:
        assert process.stdout is not None
        assert (await process.stdout.read()).decode().strip() == f"{text}\n{end}"
    assert await worker.metric("infer_total") == before + 2


async def test_a_missing_gateway_is_reported_in_one_line(installed: Installed) -> None:
    async with installed.asking("?", "ws://127.0.0.1:1/ws") as process:
        assert process.stdout is not None
        said = (await process.stdout.read()).decode()
    assert process.returncode == 1
    assert len(said.splitlines()) == 1
    assert "ws://127.0.0.1:1/ws" in said


@pytest.mark.parametrize("given", [(), ("Only a question",)])
async def test_an_example_without_its_arguments_prints_its_usage(installed: Installed, given: tuple[str, ...]) -> None:
    async with installed.asking(*given) as process:
        assert process.stdout is not None
        (line,) = (await process.stdout.read()).decode().splitlines()
    assert process.returncode == 1
    assert line.startswith("usage: ")


async def test_the_lines_of_the_protocol_page_work(gateway: Service, installed: Installed) -> None:
    """Run docs/protocol.md line by line as printed, except for the address."""
    (program,) = re.findall(rf"```{installed.language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    installed.program.write_text(program.replace("ws://127.0.0.1:8080/ws", gateway.ws))
    async with installed.asking() as process:
        assert process.stdout is not None
        assert "model " in (await process.stdout.read()).decode()
    assert process.returncode == 0


def test_both_packages_are_typed(python: Installed, node: Installed) -> None:
    """Each program has one wrong type, and the type checker finds only that one."""
    (python.folder / "typed.py").write_text(TYPED)
    mypy = (sys.executable, "-m", "mypy", "--config-file=", "--strict", "--python-executable", python.command[0])
    found = run(*mypy, "typed.py", cwd=python.folder).stdout
    assert found.endswith("Found 1 error in 1 file (checked 1 source file)\n"), found
    (node.folder / "typed.ts").write_text(TYPED_TS)
    tsc = ROOT / ".cache" / "typescript" / "node_modules" / ".bin" / "tsc"
    found = run(
        tsc, "--noEmit", "--strict", "--target", "es2023", "--module", "nodenext", "typed.ts", cwd=node.folder
    ).stdout
    assert re.findall(r"error TS.*", found) == re.findall(r"error TS2322: .* '\"model\"'\.", found) != [], found


def install_wheel(interpreter: Path, built: Path) -> None:
    """Install the wheel of all processes without its dependencies."""
    (wheel,) = built.glob("replyline-*.whl")
    done = run(
        *(sys.executable, "-m", "pip", "--python", interpreter),
        *("install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", wheel),
    )
    assert done.returncode == 0, done.stderr


def required_by(*names: str) -> set[str]:
    """Return the packages with all that they require here, without extras other than the named ones."""
    found: set[str] = set()
    left = [Requirement(name) for name in names]
    while left:
        one = left.pop()
        extras = one.extras or {""}
        for text in distribution(one.name).requires or ():
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                left += [inner] if inner.name not in found or inner.extras else []
        found.add(one.name)
    return found


@pytest.fixture(scope="module")
def bare(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it requires, without any extra."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    wanted = [line for line in distribution("replyline").requires or () if "extra ==" not in line]
    for name in required_by(*wanted):
        for top in {file.parts[0] for file in distribution(name).files or () if ".." not in file.parts}:
            target = Path(str(distribution(name).locate_file(top)))
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(target)
    install_wheel(folder / "bin" / "python", built)
    return folder / "bin"


async def test_the_wheel_without_extras_runs_a_gateway_and_a_native_worker(system: System, bare: Path) -> None:
    """The model answers in an environment that has neither the terminal's tools nor gRPC."""
    for package in ("typer", "rich", "jinja2", "grpc", "google", "onnx", "onnxruntime", "opentelemetry"):
        assert run(bare / "python", "-c", f"import {package}").returncode == 1, package
    port, operators, metrics = free_port(), free_port(), free_port()
    model = {"worker__engine": "native", "worker__max_length": 1_024, "model__dir": model_dir()}
    gateway_env = system.environment(
        **model, gateway__port=port, gateway__metrics_port=operators, gateway__reply_partition=4
    )
    worker_env = system.environment(**model, worker__metrics_port=metrics, worker__threads=1)
    started = []
    for name, env, address, page in (
        ("gateway", gateway_env, port, operators),
        ("worker", worker_env, metrics, metrics),
    ):
        log = system.folder / f"bare-{name}.log"
        child = Child.start([str(bare / "replyline"), name], env=env, log=log)
        started.append(Service(child=child, address=f"127.0.0.1:{address}", operators=f"127.0.0.1:{page}", log=log))
    try:
        for service in started:
            await service.ready()
        async with AsyncReplyline(started[0].ws) as client:
            question = ResponseCreate(event_id="e", input="Say hello.", max_output_tokens=8, deadline_ms=60_000)
            answer = await client.answer(question)
        assert answer.source == "model"
    finally:
        system.end(started)


@pytest.mark.parametrize("extra", ["ops", "grpc", "onnx", "dense"])
async def test_a_command_that_lacks_an_extra_names_it_in_one_line(system: System, bare: Path, extra: str) -> None:
    embeddings = system.folder / "embeddings"
    embeddings.mkdir(exist_ok=True)
    for name in ("model.onnx", "tokenizer.json"):
        (embeddings / name).touch()
    cases: dict[str, tuple[list[str], dict[str, Any]]] = {
        "ops": (["ask", "Hello?"], {}),
        "grpc": (["gateway"], {"gateway__grpc_port": free_port()}),
        "onnx": (["worker"], {"worker__engine": "onnx", "model__dir": model_dir()}),
        "dense": (["worker"], {"worker__engine": "fake", "faq__embeddings_dir": embeddings}),
    }
    words, settings = cases[extra]
    ports = {"gateway__port": free_port(), "gateway__metrics_port": free_port(), "worker__metrics_port": free_port()}
    env = {"PATH": os.environ["PATH"], **system.environment(**ports, **settings)}
    process = await asyncio.create_subprocess_exec(
        bare / "replyline", *words, env=env, cwd=system.folder, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            _, said = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 2, said.decode()
    (line,) = said.decode().splitlines()
    assert line.startswith("replyline: ")
    assert line.endswith(f": pip install 'replyline[{extra}]'")


def test_the_wheel_runs_the_demo_without_a_checkout(built: Path, tmp_path: Path) -> None:
    """In a new environment, with only the wheel and the installed dependencies, `up` serves the page and answers with
    the prepared model."""
    venv.create(tmp_path / "venv", symlinks=True)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(str(Path(playwright.__file__).parents[1]))  # its own .pth files are not read
    interpreter, command = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "replyline"
    (wheel,) = built.glob("replyline-*.whl")
    assert f'"dist/{wheel.name}[ops,grpc,embedded,onnx]"' in (ROOT / "docs" / "production.md").read_text()
    install_wheel(interpreter, built)
    located = run(interpreter, "-c", "import gateway, ops, shared, workers; print(ops.__file__)", cwd=tmp_path)
    assert Path(located.stdout.strip()).is_relative_to(site), located
    port = free_port()
    (tmp_path / ".models").symlink_to(ROOT / ".models")
    env = {"PATH": os.environ["PATH"], "REPLYLINE_GATEWAY__PORT": str(port)}
    with (tmp_path / "log").open("w") as log:
        up = subprocess.Popen([command, "up"], cwd=tmp_path, env=env, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 100
        while not (tmp_path / ".run" / f"demo-{port}.env").exists() and up.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        asked = run(command, "ask", "How long do refunds take?", "--deadline-ms", "60000", cwd=tmp_path)
        assert asked.returncode == 0, asked.stderr + (tmp_path / "log").read_text()
        assert "based on: " in asked.stderr
        with open_page(f"http://127.0.0.1:{port}/widget/replyline-chat.js", timeout_s=5) as script:
            assert script.status == 200
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0
