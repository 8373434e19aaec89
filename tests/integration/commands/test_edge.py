"""`replyline edge` as typed: faults are named, and with the line cut the stored FAQ answers."""

import os
import time
from pathlib import Path

import pytest

from ops.lifecycle.versions.signing import write_keys
from ops.stack.processes import Child, free_port
from shared.client import AsyncReplyline
from shared.faq.entries import PACKAGED_PATH
from shared.versions.faq_bundle import sign_faq
from shared.versions.signature import read_private_key
from tests.integration.commands.test_cli import REPLYLINE, replyline
from tests.integration.commands.test_up import Up
from tests.support.tokens import token
from workers.edge.sync import FaqFiles

AWAY = "ws://127.0.0.1:1/ws"


@pytest.fixture
def typed(tmp_path: Path) -> list[str]:
    """Run the command of an edge whose centre is away and which has no FAQ yet."""
    for folder in ("keys", "state"):
        (tmp_path / folder).mkdir()
    write_keys(tmp_path / "private.pem", tmp_path / "keys" / "faq.pem")
    (tmp_path / "token").write_text(token(edge=True, exp=time.time() + 3_600))
    given = {"centre": AWAY, "token-file": "token", "trusted-keys": "keys", "state": "state"}
    paths = {name: value if name == "centre" else str(tmp_path / value) for name, value in given.items()}
    return ["edge", *[part for name, value in paths.items() for part in (f"--{name}", value)]]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((), "needs the centre's: http://127.0.0.1:1 does not answer (ConnectError); start it again when the centre"),
        (("--centre", "http://shop/ws"), "REPLYLINE_EDGE__CENTRE='http://shop/ws': write wss://host/ws"),
        (("--token-file", "{folder}/keys/faq.pem"), "is not a token ("),
        (("--trusted-keys", "{folder}/state"), "no public key (*.pem) in it; run: replyline versions keygen"),
    ],
)
async def test_each_fault_is_named(typed: list[str], tmp_path: Path, wrong: tuple[str, ...], said: str) -> None:
    done = await replyline(*typed, *[each.format(folder=tmp_path) for each in wrong])
    assert (done.status, said in done.err) == (2, True), done.err


async def test_with_the_line_cut_the_stored_faq_answers_and_says_that_it_may_be_stale(
    typed: list[str], tmp_path: Path
) -> None:
    key = read_private_key(tmp_path / "private.pem")
    files = FaqFiles(tmp_path / "state", {"it": key.public_key()})
    files.open()
    bundle = sign_faq(PACKAGED_PATH, key, 7)
    files.take(bundle.document, bundle.signature)
    files.confirm(unix_ms=1_700_000_000_000)
    up = Up(None, tmp_path / "up.log", free_port())  # type: ignore[arg-type]  # it is started next
    env = {**os.environ, "REPLYLINE_GATEWAY__PORT": str(up.port), "REPLYLINE_WORKER__ENGINE": "fake"}
    up.child = Child.start([REPLYLINE, *typed, "--quote", "--stale-s", "1"], env=env, log=up.log)
    try:
        ready = await up.ready()
        async with AsyncReplyline(ready["ws"]) as chat:
            answer = await chat.answer("How long do I have to return something?")
    finally:
        up.child.stop(timeout_s=30)
    assert (answer.source, answer.faq_version) == ("unsure", 7)
    assert answer.output_text.startswith("I could not check since 2023-11-14 22:13 UTC")
    assert "30 days" in answer.output_text
