"""Commands of a stream: two are in flight at a time, and an unread reply is never used for another command."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from workers.kv.nodes import KvNodes, stream


@dataclass
class Node(KvNodes):
    """A node, its client, the client's pool and its only connection: it answers a command with its words."""

    log: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def connection_pool(self) -> "Node":
        return self

    def client_of(self, key: str) -> Any:
        return self

    def get_connection(self) -> "Node":
        return self

    def release(self, connection: "Node") -> None:
        self.log.append("release")

    def disconnect(self) -> None:
        self.log.append("disconnect")

    def send_command(self, *words: str) -> None:
        self.log.append(f"send {words[0]}")
        self.unread.append(words[0])

    def read_response(self) -> str:
        if self.unread[0] == "gone":
            raise ConnectionError
        return self.unread.pop(0)


def test_the_next_command_is_sent_before_a_reply_is_given() -> None:
    node = Node()
    replies = stream(node, "key", [["1"], ["2"], ["3"]])
    assert (next(replies), node.log) == ("1", ["send 1", "send 2"])
    assert ([*replies], node.log[2:]) == (["2", "3"], ["send 3", "release"])


def test_a_stream_that_ends_with_replies_unread_hangs_up() -> None:
    node = Node()
    next(stream(node, "key", [["1"], ["2"], ["3"]]))
    assert node.log[2:] == ["disconnect", "release"], "closed"
    node = Node()
    with pytest.raises(ConnectionError):
        [*stream(node, "key", [["1"], ["gone"], ["3"]])]
    assert node.log[3:] == ["disconnect", "release"], "failed"
