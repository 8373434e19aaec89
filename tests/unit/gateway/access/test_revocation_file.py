"""A token is refused when its subject's tokens up to its moment are revoked."""

from pathlib import Path

import pytest

from gateway.access.identity import TokenGate
from gateway.access.revocation_file import RevocationFile, revocation
from shared.errors import ProtocolError, SettingsError
from tests.support.tokens import KEYS, NOW_UNIX_MS, NOW_UNIX_S, RULES, token


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "revoked"
    file.write_text(f"# stolen\n\n{revocation('demo', 'edge berlin', NOW_UNIX_MS)}\n")
    return file


@pytest.mark.parametrize(
    ("claims", "revoked"),
    [
        ({"iat": NOW_UNIX_S}, True),
        ({"iat": None}, True),
        ({"iat": NOW_UNIX_S + 0.001}, False),
        ({"iat": NOW_UNIX_S, "sub": "edge-paris"}, False),
        ({"iat": NOW_UNIX_S, "tenant": "shop"}, False),
    ],
)
def test_a_subjects_tokens_up_to_that_moment_are_refused(path: Path, claims: dict[str, object], revoked: bool) -> None:
    gate = TokenGate(RULES, KEYS)
    RevocationFile(path, gate)
    text = token(**{"sub": "edge berlin", "edge": True} | claims)
    if revoked:
        with pytest.raises(ProtocolError, match="revoked") as refused:
            gate.identify(text, NOW_UNIX_MS)
        assert (refused.value.code, refused.value.kind) == ("unauthorized", "authentication_error")
    else:
        assert gate.identify(text, NOW_UNIX_MS).edge


def test_a_byte_order_mark_is_no_part_of_the_first_tenant(path: Path) -> None:
    path.write_text(revocation("demo", "alice", NOW_UNIX_MS), encoding="utf-8-sig")
    gate = TokenGate(RULES, KEYS)
    RevocationFile(path, gate)
    assert gate.revoked_until["demo", "alice"] == NOW_UNIX_MS


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x1e", "\r"])
def test_a_subject_may_hold_what_separates_lines_elsewhere(path: Path, separator: str, end: str) -> None:
    subject = f"edge{separator}berlin"
    path.write_text(path.read_text() + revocation("demo", subject, NOW_UNIX_MS) + end, newline="")
    gate = TokenGate(RULES, KEYS)
    RevocationFile(path, gate)
    assert gate.revoked_until["demo", subject] == NOW_UNIX_MS


def test_the_later_of_two_moments_of_a_subject_counts(path: Path) -> None:
    path.write_text(path.read_text() + revocation("demo", "edge berlin", NOW_UNIX_MS - 9) + "\n")
    gate = TokenGate(RULES, KEYS)
    RevocationFile(path, gate)
    assert gate.revoked_until == {("demo", "edge berlin"): NOW_UNIX_MS}


@pytest.mark.parametrize("line", ["edge-berlin", "demo/edge-berlin", "demo/edge-berlin yesterday", "/ 2026-01-01"])
def test_a_bad_line_stops_the_start_and_changes_nothing_later(path: Path, line: str) -> None:
    gate = TokenGate(RULES, KEYS)
    revocations = RevocationFile(path, gate)
    path.write_text(line)
    with pytest.raises(SettingsError, match="line 1"):
        revocations.read(path)
    assert gate.revoked_until == {("demo", "edge berlin"): NOW_UNIX_MS}
    with pytest.raises(SettingsError, match="--revoke"):
        RevocationFile(path, gate)


def test_a_file_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        RevocationFile(tmp_path / "none", TokenGate(RULES, KEYS))
