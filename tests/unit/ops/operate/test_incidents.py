"""Past incidents are found by their symptoms, with other numbers and addresses, along with their remedy."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ops.cli import app
from ops.operate.incidents.incident import Incident, likeness, nearest, new_incident
from ops.operate.incidents.shelf import Shelf
from shared.errors import SettingsError

SKEW = {
    "skew": ["http://10.0.0.7:8081/metrics has 8 of 8 slots taken, and 9 wait", "http://w:8081 has 1 of 8, and 0 wait"],
    "decode": ["http://10.0.0.7:8081 computes 97% of the time"],
}
ELSEWHERE = {
    "skew": ["http://10.2.3.4:9/metrics has 16 of 16 slots taken, and 40 wait", "http://z:1 has 2 of 16, and 0 wait"],
    "decode": ["http://10.2.3.4:9 computes 91% of the time"],
}
REDIS = {"redis": ["a PING to Redis took 80 ms (limit 20 ms)"], "decode": ["http://a:1 computes 97% of the time"]}
FOUND = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(st.text(max_size=8), max_size=3), max_size=3)


def incident(found: dict[str, list[str]], unix_ms: int) -> Incident:
    return new_incident(found, unix_ms)


def test_the_same_fault_of_other_machines_and_numbers_is_the_same() -> None:
    assert likeness(SKEW, ELSEWHERE) == 1.0
    assert 0 < likeness(SKEW, REDIS) < 0.5


@given(FOUND, FOUND)
def test_likeness_is_a_share_and_has_no_side(one: dict[str, list[str]], other: dict[str, list[str]]) -> None:
    assert 0.0 <= likeness(one, other) == likeness(other, one) <= 1.0
    assert likeness(one, one) == (1.0 if one else 0.0)


def test_the_most_alike_comes_first_and_of_those_the_newest() -> None:
    kept = [incident(REDIS, 1_000), incident(ELSEWHERE, 2_000), incident(ELSEWHERE, 3_000)]
    found = nearest(SKEW, kept, at_least=0.5, limit=3)
    assert [each.unix_ms for _, each in found] == [3_000, 2_000]


def test_nothing_found_is_no_incident() -> None:
    with pytest.raises(ValueError, match="nothing is at its limit"):
        new_incident({}, 0.0)


def test_what_helped_is_told_beside_the_next_of_its_kind(tmp_path: Path) -> None:
    shelf, runner = Shelf(tmp_path / "kept"), CliRunner()
    old, new = incident(SKEW, 1_000), incident(ELSEWHERE, 90_000)
    for each in (old, new):
        shelf.keep(each)
    folder = ["--incidents", str(shelf.folder)]
    assert "noted" in runner.invoke(app, ["incidents", "note", old.id, "two more partitions", *folder]).output
    shown = runner.invoke(app, ["incidents", "show", new.id, *folder]).output
    assert f"seen before: {old.id}, 100% alike (skew); two more partitions" in shown
    assert "two more partitions" in runner.invoke(app, ["incidents", "list", *folder]).output
    assert shelf.find(old.id).notes[0].text == "two more partitions"


def test_what_is_no_incident_is_named(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    with pytest.raises(SettingsError, match="x: no such incident"):
        shelf.find("x")
    shelf.keep(incident(SKEW, 1_000))
    shelf.keep(incident(REDIS, 1_000))
    with pytest.raises(SettingsError, match="1970: 2 ids begin with this"):
        shelf.find("1970")
    (tmp_path / "a.json").write_bytes(msgspec.json.encode({"id": 1}))
    with pytest.raises(SettingsError, match=r"a\.json: not an incident"):
        shelf.all()
