"""What the tests share: the real services. Where one is missing the test fails with the command that installs it."""

import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio

from ops.stack.embedded import EmbeddedRedis
from ops.stack.kafka_broker import KafkaBroker
from ops.stack.processes import ServiceError
from tests.support.not_run import named
from tests.support.shared_system import Running, SharedSystem, in_order
from tests.support.system import MakeSystem, Service, System, made

pytest_plugins: Final = ("tests.support.reliability",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run all trials of a table, not the short form's")


def pytest_configure() -> None:
    # A background test run has SIGINT ignored, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_order(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in named(terminalreporter.config):
        terminalreporter.write_line(f"NOT RUN on this machine: {line}", yellow=True)


@pytest.fixture(scope="session")
def whole(pytestconfig: pytest.Config) -> bool:
    """Whether all trials are asked for."""
    return bool(pytestconfig.getoption("--whole"))


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """Real Apache Kafka for the whole session: `bootstrap`. Topics are not made by being named.

    Use `topic_prefix` to keep out of other tests' topics, and a broker of your own for outages.
    """
    broker = KafkaBroker()
    try:
        broker.start()
    except ServiceError as error:
        pytest.fail(f"{error}", pytrace=False)
    yield broker
    broker.stop()


@dataclass(slots=True)
class RedisServer:
    """The system's redis-server. `stop`, `kill` and `start` make outages; `pause` and `resume` make it hang."""

    _server: EmbeddedRedis

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.kill()

    def pause(self) -> None:
        self._server.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._server.signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[RedisServer]:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.fail("redis-server is missing. Type: apt-get install redis-server", pytrace=False)
    with EmbeddedRedis(binary=binary) as server:
        yield RedisServer(server)


@pytest.fixture
def redis_server(_redis_server: RedisServer) -> Iterator[RedisServer]:
    """A real Redis, up and answering when the test begins, even if the test before stopped it. Not emptied."""
    _redis_server.start()
    yield _redis_server
    _redis_server.resume()


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """`unique("group")` gives a name that no other test uses, in this run or another."""
    numbers = itertools.count(1)
    return lambda stem: f"{stem}-{os.getpid()}-{next(numbers)}"


@pytest.fixture
def topic_prefix(unique: Callable[[str], str]) -> str:
    """For `KafkaSettings.topic_prefix`: topics that only this test uses."""
    return unique("t") + "."


@contextmanager
def _making(
    kafka_broker: KafkaBroker, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeSystem]:
    with ExitStack() as systems:

        async def make(*, broker: str = kafka_broker.bootstrap, **settings: Any) -> System:
            folder, prefix = tmp_path_factory.mktemp("system"), unique("s") + "."
            system = await made(bootstrap=broker, prefix=prefix, folder=folder, **settings)
            systems.callback(system.stop)
            return system

        yield make


@pytest_asyncio.fixture(scope="module")
async def make_system(
    kafka_broker: KafkaBroker, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MakeSystem]:
    """`await make_system(worker__slots=4)`: a system of the module's own without its services yet, its topics made.

    `broker=` names another broker than the shared one.
    """
    with _making(kafka_broker, unique, tmp_path_factory) as make:
        yield make


@pytest_asyncio.fixture
async def new_system(
    kafka_broker: KafkaBroker, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MakeSystem]:
    """The same for one test, which leaves it behind in any state."""
    with _making(kafka_broker, unique, tmp_path_factory) as make:
        yield make


@pytest_asyncio.fixture(scope="session")
async def _shared(
    kafka_broker: KafkaBroker, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SharedSystem]:
    with _making(kafka_broker, unique, tmp_path_factory) as make:
        yield SharedSystem(make)


@pytest_asyncio.fixture(scope="module")
async def running(request: pytest.FixtureRequest, _shared: SharedSystem) -> AsyncIterator[Running]:
    """The system that the module's mark asks for, with its services."""
    mark = request.node.get_closest_marker("system")
    assert mark is not None, "the module says which system it wants: pytestmark = pytest.mark.system(...)"
    running = await _shared.get(mark)
    yield running
    running.end_guests()


@pytest.fixture(scope="module")
def system(running: Running) -> System:
    return running.system


@pytest.fixture(scope="module")
def worker(running: Running) -> Service:
    return running.workers[0]


@pytest.fixture(scope="module")
def gateway(running: Running) -> Service:
    return running.gateways[0]


@pytest.fixture(scope="module")
def gateways(running: Running) -> list[Service]:
    return running.gateways
