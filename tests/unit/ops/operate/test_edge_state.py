"""Only one edge of one tenant may use a state folder: the edge sends the folder's journal as turns of its token's
tenant."""

from pathlib import Path

import pytest

from ops.operate.edge import lock_state
from shared.errors import SettingsError


def test_a_folder_is_of_one_edge_at_a_time(tmp_path: Path) -> None:
    state = tmp_path / "edge"
    with lock_state(state, "shop-1"), pytest.raises(SettingsError, match="another edge uses it; name another folder"):
        lock_state(state, "shop-1")
    lock_state(state, "shop-1").close()


def test_a_folder_stays_its_tenants(tmp_path: Path) -> None:
    lock_state(tmp_path, "shop-1").close()
    for _ in range(2):
        with pytest.raises(SettingsError, match="are of tenant shop-1, and the token is of shop-2; name another"):
            lock_state(tmp_path, "shop-2")
    lock_state(tmp_path, "shop-1").close()
