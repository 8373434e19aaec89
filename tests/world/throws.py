"""Injected faults: an unexpected exception at a call from one part of the product to another."""

import inspect
import sys
from collections.abc import Callable, Sequence, Sized
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

from tests.world.virtual.node import NODE, Node

SECRET: Final = "my card is 4111"
_ROOT: Final = Path(__file__).parents[2]
_OURS: Final = tuple(f"{_ROOT / name}/" for name in ("gateway", "shared", "workers"))
# Handlers themselves, and functions that raise nothing by contract, are excluded; exceptions are injected into what
# they call. So is work that belongs to no single request and whose failure ends the process.
_LEFT_OUT: Final = (
    *(
        "Answering.end",
        "Answering.deliver",
        "Answering.fail",
        "Answering.run_for",
        "Receiving.receive_replies",
        "InflightTable.refused_on_error",
    ),
    *("DeadLetters.put", "Worker.publish", "Lookahead.next", "Lookahead.resting", "Lookahead.drop"),
    *(
        "OpenAnswers.add",
        "OpenAnswers.idle",
        *(f"AnswerReaders.{name}" for name in ("add", "remove", "fail")),
        "InflightTable.retire",
        "Answering.cancel",
    ),
    *(
        "Connections.send_away",
        "WebSocketConnection.close",
        "WebSocketConnection.closed",
        "EngineLoop.stuck",
        "Worker.drain",
        "Commits.commit",
        "Commits.leave",
        "Commits.part",
        "Commits.run",
    ),
)


Entered = Callable[[Node, str, str], None]


class ThrownError(Exception):
    """An exception that quotes a customer's text, as many exceptions do."""

    def __init__(self) -> None:
        super().__init__(f"could not convert '{SECRET}'")


def install(seams: Sequence[str], entered: Entered, aimed: Sized) -> None:
    """Call `entered` before and after each call of these functions and of these classes' public methods while anything
    is `aimed`."""
    for seam in seams:
        thing, (module, _, own) = resolve_name(seam), seam.partition(":")
        if not inspect.isclass(thing):
            setattr(resolve_name(module), own, _watched(thing, own, seam, entered, aimed))
            continue
        for name, method in list(vars(thing).items()):
            if inspect.isfunction(method) and name[0] != "_" and f"{own}.{name}" not in _LEFT_OUT:
                setattr(thing, name, _watched(method, f"{own}.", seam, entered, aimed))


def _watched(call: Callable[..., Any], own: str, seam: str, entered: Entered, aimed: Sized) -> Callable[..., Any]:
    """Wrap a call; calls within the same class and from libraries are not reported."""
    waits = inspect.iscoroutinefunction(call)

    async def work(node: Node, args: Any, named: Any) -> Any:
        entered(node, seam, call.__name__)
        value = await call(*args, **named)
        entered(node, f"{seam} done", call.__name__)
        return value

    @wraps(call)
    def called(*args: Any, **named: Any) -> Any:
        if not aimed:
            return call(*args, **named)
        by, node = sys._getframe(1).f_code, NODE.get(None)
        if node is None or not by.co_filename.startswith(_OURS) or by.co_qualname.startswith(own):
            return call(*args, **named)
        if waits:
            return work(node, args, named)
        entered(node, seam, call.__name__)
        value = call(*args, **named)
        entered(node, f"{seam} done", call.__name__)
        return value

    return called
