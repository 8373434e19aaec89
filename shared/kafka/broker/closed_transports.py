"""Tell aiokafka what it does not know of uvloop: writing to a transport that has closed raises `RuntimeError` there.

aiokafka takes an `OSError` for the end of a connection and connects anew; by any other error its fetcher, its sender
and its coordinator end for good, and the process with them (aio-libs/aiokafka#1038). It happens where the broker
resets a connection in the moment before a request is sent.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError

_WRITERS: Final = ("send", "_send_sasl_token")


def take_for_broken() -> None:
    """Take a connection whose transport has closed for a broken one from now on: `KafkaConnectionError`. Once a
    process."""
    for name in _WRITERS:
        setattr(AIOKafkaConnection, name, _or_broken(getattr(AIOKafkaConnection, name)))


def _or_broken(write: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(write)
    def written(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return write(self, *args, **kwargs)
        except KafkaError:  # a RuntimeError too
            raise
        except RuntimeError as error:
            if self._writer is None or not self._writer.transport.is_closing():
                raise
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"connection at {self.host}:{self.port} broken: {error}") from error

    return written
