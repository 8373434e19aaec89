"""The system that a bench or an evaluation starts for itself, in the environment of the terminal."""

from pathlib import Path

import pytest

from ops.stack.system import _UNLIMITED
from shared.settings import PREFIX, Settings


@pytest.mark.parametrize("name", ["AUTH__SECRET_FILE", "AUTH__JWKS"])
def test_keys_of_another_gateway_do_not_stop_a_measured_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/security.md has them exported in the terminal in which the next command is typed."""
    keys = tmp_path / "keys"
    keys.write_text('{"keys": [{"kty": "oct", "k": "0123456789012345678901234567890123456789"}]}')
    monkeypatch.setenv(f"{PREFIX}{name}", str(keys))
    for setting, value in _UNLIMITED.items():
        monkeypatch.setenv(f"{PREFIX}{setting}", value)
    assert Settings().auth.decided_mode == "anonymous"
