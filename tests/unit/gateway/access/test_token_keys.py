"""A JWKS supplies public signature keys, each for one algorithm; all other entries are skipped."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from gateway.access.token_keys import KeySet, parse_jwks, secret_key
from tests.support.tokens import EC, ED, JWKS, RSA, jwk, jwks

SMALL = rsa.generate_private_key(65_537, 1_024)
P384 = ec.generate_private_key(ec.SECP384R1())
PRIVATE_RSA: dict[str, Any] = RSAAlgorithm.to_jwk(RSA, as_dict=True)

PASSED_OVER: dict[str, Any] = {
    "a secret": {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "alg": "HS256"},
    "a secret that calls itself RSA": {"kty": "RSA", "k": "c2VjcmV0", "alg": "HS256"},
    "a private key": {**PRIVATE_RSA, "key_ops": ["verify"]},
    "an RSA key of 1024 bits": jwk(SMALL),
    "another curve": ECAlgorithm.to_jwk(P384.public_key(), as_dict=True),
    "a key for encryption": jwk(RSA, use="enc"),
    "a key for other work": jwk(RSA, key_ops=["encrypt"]),
    "a key of another algorithm": jwk(RSA, alg="PS256"),
    "an RSA key that says HS256": jwk(RSA, alg="HS256"),
    "a key whose name is a number": jwk(RSA, kid=7),
    "a key without its number": {"kty": "RSA", "e": "AQAB"},
    "a point that is on no curve": jwk(EC, x="AAAA"),
    "a key of an unknown kind": {"kty": "AKP", "alg": "ML-DSA-44", "pub": "x"},
    "no object": 7,
}


@pytest.mark.parametrize("name", PASSED_OVER)
def test_an_entry_that_is_no_public_signature_key_is_skipped(name: str) -> None:
    (key,) = parse_jwks(jwks(PASSED_OVER[name], jwk(ED, kid="good")))
    assert (key.algorithm, key.kid) == ("EdDSA", "good")
    with pytest.raises(ValueError, match="no RSA"):
        parse_jwks(jwks(PASSED_OVER[name]))


def test_each_key_has_the_algorithm_of_its_kind() -> None:
    assert {key.kid: key.algorithm for key in parse_jwks(JWKS)} == {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}


@pytest.mark.parametrize("fields", [{"use": "sig"}, {"key_ops": ["encrypt", "verify"]}, {"alg": "RS256"}])
def test_a_key_marked_for_signatures_is_accepted(fields: dict[str, Any]) -> None:
    (key,) = parse_jwks(jwks(jwk(RSA, **fields)))
    assert key.algorithm == "RS256"


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"nonsense", b"[]", b"{}", b'{"keys":7}', b'{"keys":[]}', b"\xff", b'{"keys":[{"kty":"\xff"}]}'),
        *(b'{"x":' + DEEP + b',"keys":[]}', b'{"keys":[' + DEEP + b"]}"),
    ],
    ids=lambda data: repr(data[:20]),
)
def test_an_invalid_jwks_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="JWKS"):
        parse_jwks(data)


def test_of_two_keys_with_one_name_the_first_counts() -> None:
    first, second = jwk(RSA, kid="k"), jwk(rsa.generate_private_key(65_537, 2_048), kid="k")
    (key,) = parse_jwks(json.dumps({"keys": [first, second]}).encode())
    assert key.material.public_numbers() == RSA.public_key().public_numbers()


def test_a_key_is_found_by_its_id_among_those_of_its_algorithm() -> None:
    keys = KeySet((secret_key(b"s"), *parse_jwks(jwks(jwk(RSA, kid="k"), jwk(EC, kid="k"), jwk(ED)))))
    for algorithm in ("RS256", "ES256"):
        found = keys.find(algorithm, "k")
        assert found is not None
        assert found.algorithm == algorithm
    assert keys.find("EdDSA", "k") is None
    assert keys.find("EdDSA", None) is not None
    secret = keys.find("HS256", "k")
    assert secret is not None
    assert secret.material == b"s"


def test_no_key_is_shown() -> None:
    assert "hidden" not in repr(secret_key(b"hidden"))
