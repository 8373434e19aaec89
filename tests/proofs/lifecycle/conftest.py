"""What the tests of the lifecycle share: the table that they fill, and how much of it is asked for."""

import shutil
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from ops.stack.embedded import EmbeddedRedis
from tests.integration.conftest import _own_broker, own_broker
from tests.proofs.lifecycle.models import Speaker, prepare_speaker
from tests.proofs.lifecycle.setting import SETTINGS, Setting
from tests.support.rows import Rows
from tests.support.system import MakeSystem
from workers.engine import short_revision

__all__ = ["_own_broker", "own_broker"]

ASKED: Final = {
    "switch: answers dropped, mixed or of foreign KV": "0 dropped, 0 mixed, 0 foreign KV",
    "switch: answers that are their revision's own tokens": "all",
    "switch: from the alias's move to the last request begun on the old": "at most 1 s over both gateways",
    "switch: p99 of the first text while loading": "at most 1.2 times that without",
    "switch: kill -9 of a loading worker's rehearsal": "the old version serves; nothing is moved",
    "switch: kill -9 of a worker during a switch": "0 dropped, 0 mixed; the switch is completed",
    "share: hash on 40 salts": "as near to the share as chance allows, for each salt",
    "share: live": "within three standard errors of its own",
    "share: conversations that change sides": "0 but by promotion or rollback, over two gateways",
    "rollback: from the alarm to the last request routed to the canary": "at most 1 s (p99), at both gateways",
    "rollback: whole trials with 30 % bad answers": "at most 30 s from the first canary answer, every trial",
    "rollback: canary answers to the alarm": "the median, at 15, 20, 30, 50 and 100 % bad, and after 1,000 good ones",
    "rollback: answers to the alarm after good ones": "at most 6 at 100 % and 38 at 30 % bad, after 0 to 200,000",
    "rollback: a canary that is bad in one class only": "never promoted; in nine of ten at most 25 customers failed",
    "A/A: rollouts of the champion against itself": "at most alpha, 5 %, of each kind of traffic",
    "capacity: requests that lose the model through a rollout": "0 more than without, at 0.8 of capacity",
    "faults: corrupt, truncated, wrongly signed, wrong base": "never loaded, each with its named reason",
    "faults: the registry is away": "nothing changes",
    "faults: the controller is killed at every step": "the rollout goes on",
    "shadow: p99 of the main's first text": "at most 2 % more, and its median",
}
_FAILURE: Final = pytest.StashKey[str]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/proofs/lifecycle/" in item.nodeid:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(3_600))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lifecycle", metavar="FILE", type=Path, help="write the table of the lifecycle to FILE")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    if call.excinfo is not None:
        item.stash.setdefault(_FAILURE, " ".join(call.excinfo.exconly().split())[:300])
    return (yield)


@pytest.fixture(scope="session")
def _table(pytestconfig: pytest.Config) -> Rows:
    table = Rows(pytestconfig.getoption("--lifecycle", default=None), ASKED)
    table.write()
    return table


@pytest.fixture
def rows(_table: Rows, request: pytest.FixtureRequest) -> Iterator[Rows]:
    """The table of this run; with `--lifecycle FILE` it is written there. Of the rows that the test's mark names, those
    that it does not come to are "not run", with its failure."""
    _table.missed.clear()
    yield _table
    for mark in request.node.iter_markers("rows"):
        for name in mark.args:
            _table.not_run(name, request.node.stash.get(_FAILURE, "its test found nothing"))
    if _table.missed:
        pytest.fail("\n".join(_table.missed), pytrace=False)


MakeSetting = Callable[..., Awaitable[Setting]]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`models("two")` is the folder of a model that speaks like no other; `models("bad", 0.3)` is silent to 30 %."""
    folder = tmp_path_factory.mktemp("speakers")

    def model(name: str, bad: float = 0.0) -> Path:
        return prepare_speaker(folder, name, bad=bad)

    return model


@pytest.fixture
def make_setting(new_system: MakeSystem, models: Callable[..., Path]) -> Iterator[MakeSetting]:
    """`await make_setting()`: a setting whose services are not started. Its workers serve the model "one" before the
    registry names a version. KV uses a separate Redis, as in production: it evicts no turns."""
    with ExitStack() as ended, EmbeddedRedis(binary=shutil.which("redis-server")) as kv_redis:

        async def make(**settings: Any) -> Setting:
            own = {"model__dir": models("one"), "kv_redis__url": kv_redis.url}
            speaker = Speaker(models("one"))
            system = await new_system(**SETTINGS | own | settings)
            setting = Setting(system=system, speakers={short_revision(speaker.folder.manifest.revision): speaker})
            ended.callback(setting.stop_controllers)
            return setting

        yield make
