"""The command `replyline`, from its first moment."""

import signal
from collections.abc import Iterator

import pytest

import ops.cli
from ops.entry import main


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_the_command_while_its_modules_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.cli, "main", lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 143
