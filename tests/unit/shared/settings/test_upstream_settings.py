"""Addresses of upstream servers, and invalid values refused with a line that names the remedy."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from shared.errors import SettingsError
from shared.settings import Settings
from shared.settings.load_settings import load_settings
from shared.settings.worker import UpstreamSettings
from shared.wire.lanes import LANES, Lane


def test_addresses_are_separated_by_commas_and_lose_their_last_slash() -> None:
    assert UpstreamSettings.model_validate({"url": "http://a:1/v1/, https://b/v1"}).url == (
        "http://a:1/v1",
        "https://b/v1",
    )


@pytest.mark.parametrize(
    "url",
    ["a:8000", "ftp://a/v1", "http://", "http://a:0/v1", "http://a:x/v1", "http://a/v1?key=k", "http://a/,http://a/"],
)
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match=r"write http://|twice"):
        UpstreamSettings.model_validate({"url": url})


def test_a_key_in_an_address_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLYLINE_UPSTREAM__URL", "http://me:s3cret@a/v1")
    with pytest.raises(SettingsError, match="REPLYLINE_UPSTREAM__KEY_FILE") as caught:
        load_settings()
    assert "s3cret" not in str(caught.value)


def test_an_empty_key_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ValidationError, match="empty"):
        UpstreamSettings.model_validate({"url": "http://a/v1", "key_file": tmp_path / "key"})


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_judged_by_its_version_has_no_upstream(lane: Lane) -> None:
    given = {"worker": {"engine": "upstream", "lane": lane}, "upstream": {"url": "http://a/v1"}}
    if lane in {"champion", "light", "cpu"}:
        assert Settings.model_validate(given).worker.lane == lane
    else:
        with pytest.raises(ValidationError, match=f"lane={lane} .* use worker.lane=champion"):
            Settings.model_validate(given)


@pytest.mark.parametrize("given", [{"worker": {"engine": "upstream"}}, {"upstream": {"url": "http://a/v1"}}])
def test_the_engine_and_its_address_go_together(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="REPLYLINE_UPSTREAM__URL=http"):
        Settings.model_validate(given)
