"""`replyline token` creates a token that a gateway with the same settings accepts, or says why it cannot."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway.access.identity import Identity, TokenGate, verify
from gateway.access.revocation_file import RevocationFile
from ops.cli import app
from ops.operate.token import mint_token
from shared.errors import ProtocolError, SettingsError
from shared.process.clock import wire_unix_ms
from shared.settings.auth import Algorithm, AuthSettings
from tests.support.tokens import KEYS, KID, NOW_UNIX_MS, NOW_UNIX_S, PRIVATE, RULES, SECRET, PrivateKey
from tests.support.typed_pages import ALL


@pytest.fixture
def with_secret(tmp_path: Path) -> AuthSettings:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    return AuthSettings(secret_file=file)


def written(folder: Path, key: PrivateKey) -> Path:
    file = folder / "key.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file


def test_the_secret_signs(with_secret: AuthSettings) -> None:
    token = mint_token(with_secret, tenant="demo", subject="alice", ttl_s=7, now_unix_ms=NOW_UNIX_MS)
    assert verify(token, KEYS, RULES, NOW_UNIX_MS) == Identity(
        "demo", "alice", (NOW_UNIX_S + 7) * 1_000, issued_unix_ms=NOW_UNIX_MS
    )


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_private_key_signs_for_the_jwks_that_has_its_public_half(tmp_path: Path, algorithm: Algorithm) -> None:
    file = written(tmp_path, PRIVATE[algorithm])
    token = mint_token(
        AuthSettings(),
        tenant="demo",
        subject="alice",
        ttl_s=7,
        now_unix_ms=NOW_UNIX_MS,
        private_key=file,
        kid=KID[algorithm],
    )
    assert verify(token, KEYS, RULES, NOW_UNIX_MS).subject == "alice"


@pytest.mark.parametrize(("tenant", "subject"), [("a/b", "alice"), ("", "alice"), ("demo", ""), ("demo", "a" * 256)])
def test_what_the_gateway_would_refuse_is_not_made(with_secret: AuthSettings, tenant: str, subject: str) -> None:
    with pytest.raises(SettingsError, match="the gateway would refuse the token"):
        mint_token(with_secret, tenant=tenant, subject=subject, ttl_s=7, now_unix_ms=NOW_UNIX_MS)


def test_without_a_usable_key_it_is_said_what_to_give(tmp_path: Path) -> None:
    def refusal(private_key: Path | None) -> str:
        with pytest.raises(SettingsError) as caught:
            mint_token(
                AuthSettings(),
                tenant="demo",
                subject="alice",
                ttl_s=7,
                now_unix_ms=NOW_UNIX_MS,
                private_key=private_key,
            )
        return str(caught.value)

    assert "REPLYLINE_AUTH__SECRET_FILE" in refusal(None)
    assert "No such file" in refusal(tmp_path / "none")
    (tmp_path / "text").write_text("no key")
    assert "not a PEM private key" in refusal(tmp_path / "text")
    assert "P-256 or Ed25519" in refusal(written(tmp_path, ec.generate_private_key(ec.SECP384R1())))


def test_the_pages_command_prints_the_line_that_revokes_an_edges_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], with_secret: AuthSettings
) -> None:
    """docs/edge.md, typed: tokens of now and before are refused, later ones accepted."""
    (command,) = [block.text for block in ALL if block.text.startswith("replyline token --revoke")]
    words, file = command.strip().split(" >> ")
    app(words.split()[1:], standalone_mode=False)
    (tmp_path / file).write_text(capsys.readouterr().out)
    gate = TokenGate(RULES, KEYS)
    RevocationFile(tmp_path / file, gate)
    for ahead_ms, revoked in ((-1_000, True), (1_000, False)):
        now_ms = wire_unix_ms() + ahead_ms
        token = mint_token(with_secret, tenant="demo", subject="edge-berlin", ttl_s=9, now_unix_ms=now_ms, edge=True)
        if revoked:
            with pytest.raises(ProtocolError, match="revoked"):
                gate.identify(token, now_ms)
        else:
            assert gate.identify(token, now_ms).edge
