"""Observe a running system: read every process's metrics twice, and probe Kafka, Redis and the WebSocket."""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from http.client import HTTPException
from statistics import median
from typing import Final

import msgspec
from msgspec import Struct
from redis.exceptions import RedisError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from ops.operate.diagnose.pages import Page, Window, parse_page
from ops.operate.diagnose.system import Answered, Probe, Process, Role, System
from ops.stack.own_pages import open_page
from shared.errors import BrokerUnavailable, SettingsError
from shared.kafka import describe_topics, group_lag
from shared.redis.client import RedisClient
from shared.settings import Settings
from shared.wire.lanes import CHAMPION, LANES, Lane
from shared.wire.messages import Bucket
from shared.wire.topics import BUCKETS, TopicNames, in_lane

_TIMES: Final = 5
_PATIENCE_S: Final = 5.0


class _Target(Struct):
    scrape_url: str = msgspec.field(name="scrapeUrl")
    labels: dict[str, str]


class _Targets(Struct):
    active: list[_Target] = msgspec.field(name="activeTargets")


class _TargetsAnswer(Struct):
    data: _Targets


async def targets_of(prometheus: str) -> list[tuple[Role, str]]:
    """Return the gateways and workers that Prometheus scrapes, by the names of its jobs. Raises `SettingsError`."""
    try:
        body = await asyncio.to_thread(_ask, f"{prometheus.rstrip('/')}/api/v1/targets?state=active")
        found = msgspec.json.decode(body, type=_TargetsAnswer).data.active
    except (OSError, HTTPException, ValueError, msgspec.MsgspecError) as error:
        raise SettingsError(f"--prometheus {prometheus}: {_told(error)}; write the address of a Prometheus") from None
    roles = [(role, target.scrape_url) for target in found for role in Role if target.labels.get("job") == role]
    if not roles:
        raise SettingsError(f"{prometheus} scrapes no job named gateway or worker; see ops/docker/prometheus.yml")
    return roles


async def look(settings: Settings, processes: Sequence[tuple[Role, str]], *, url: str, seconds: float) -> System:
    """Observe all processes for `seconds`. `url` is the customers' WebSocket address; it is not probed if empty. Never
    raises: a part that does not answer is reported as such."""
    first = await asyncio.gather(*(_page(address) for _, address in processes))
    began = time.monotonic()
    socket, broker, redis, lag = await asyncio.gather(
        _socket(url), _timed(lambda: describe_topics(settings.kafka), 1), _redis(settings), _lag(settings)
    )
    await asyncio.sleep(max(0.0, seconds - (time.monotonic() - began)))
    then = await asyncio.gather(*(_page(address) for _, address in processes))
    took_s = time.monotonic() - began
    return System(
        processes=[
            Process(role, address, _window(before, after, took_s))
            for (role, address), before, after in zip(processes, first, then, strict=True)
        ],
        socket=socket,
        broker=broker,
        redis=redis,
        lag=lag,
    )


def _window(before: Page | str, after: Page | str, seconds: float) -> Window | str:
    if isinstance(before, str) or isinstance(after, str):
        return after if isinstance(after, str) else str(before)
    return Window(before, after, seconds)


async def _page(url: str) -> Page | str:
    try:
        return parse_page((await asyncio.to_thread(_read, url)).decode())
    except urllib.error.URLError as error:
        return f"no answer: {error.reason}"
    except HTTPException as error:
        return f"no answer in HTTP: {_told(error)}"
    except (OSError, ValueError) as error:
        return f"no answer: {error}"


def _told(error: Exception) -> str:
    """Return an error in one line. Some errors of `http.client` have no text."""
    return (str(error).splitlines() or [""])[0].strip() or type(error).__name__


def _read(url: str) -> bytes:
    with open_page(url, timeout_s=_PATIENCE_S) as page:
        body: bytes = page.read()
        return body


def _ask(prometheus: str) -> bytes:
    """Query Prometheus through the environment's proxy, if one is set: it may be on another network."""
    with urllib.request.urlopen(prometheus, timeout=_PATIENCE_S) as page:  # noqa: S310 - an operator names it
        body: bytes = page.read()
        return body


async def _timed(ask: Callable[[], Awaitable[object]], times: int) -> Probe:
    """Run a probe `times` times; return the median time."""
    took: list[float] = []
    try:
        async with asyncio.timeout(_PATIENCE_S):
            for _ in range(times):
                began = time.perf_counter()
                await ask()
                took.append(time.perf_counter() - began)
    except TimeoutError:
        return f"no answer within {_PATIENCE_S:.0f} s"
    except (BrokerUnavailable, RedisError, OSError, ConnectionClosed) as error:
        return str(error).splitlines()[0]
    return Answered(median(took))


async def _socket(url: str) -> Probe:
    """Ping the WebSocket before `session.start`, so that no token is needed."""
    if not url:
        return None
    try:
        async with asyncio.timeout(_PATIENCE_S), connect(url, compression=None, proxy=None) as socket:

            async def ping() -> None:
                await (await socket.ping())

            return await _timed(ping, _TIMES)
    except TimeoutError:
        return f"no connection to {url} within {_PATIENCE_S:.0f} s"
    except (OSError, ValueError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
        return f"no connection to {url}: {error}"


async def _redis(settings: Settings) -> Probe:
    client = RedisClient(settings.redis, timeout_ms=_PATIENCE_S * 1_000)
    try:
        return await _timed(client.ping, _TIMES)
    finally:
        await client.close()


async def _lag(settings: Settings) -> dict[str, int] | str:
    names = TopicNames(settings.kafka.topic_prefix)
    lag: dict[str, int] = {}
    try:
        async with asyncio.timeout(_PATIENCE_S):
            found = await describe_topics(settings.kafka)
            for lane in LANES:
                topics = {names.requests(bucket, lane): bucket for bucket in BUCKETS}
                if lane == CHAMPION or topics.keys() <= found.keys():
                    waits = await group_lag(settings.kafka, in_lane(settings.kafka.workers_group, lane), list(topics))
                    lag |= {_named(topics[topic], lane): records for topic, records in waits.items()}
    except TimeoutError:
        return f"no answer within {_PATIENCE_S:.0f} s"
    except BrokerUnavailable as error:
        return _told(error)
    return lag


def _named(bucket: Bucket, lane: Lane) -> str:
    return bucket if lane == CHAMPION else f"{bucket} of lane {lane}"
