"""A token identifies the client or is refused: no algorithm of the client's choice, no missing claim, no
changed byte."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.identity import Identity, TokenRules, lacks_key, verify
from gateway.access.token_keys import KeySet, parse_jwks, secret_key
from shared.errors import ProtocolError
from shared.settings.auth import ALGORITHMS, Algorithm
from tests.support.reliability import Reliability
from tests.support.tokens import (
    EC,
    ED,
    KEYS,
    NOW_UNIX_MS,
    NOW_UNIX_S,
    PRIVATE,
    RSA,
    RULES,
    SECRET,
    b64,
    by_hand,
    claims,
    jwk,
    jwks,
    public_pem,
    segment,
    token,
)

HS = {"alg": "HS256", "typ": "JWT"}
_HEAD, _BODY, _SIGN = token().split(".")


def check(text: str, keys: KeySet = KEYS, rules: TokenRules = RULES, now: float = NOW_UNIX_MS) -> Identity:
    return verify(text, keys, rules, now)


def refusal(text: str, keys: KeySet = KEYS, rules: TokenRules = RULES, now: float = NOW_UNIX_MS) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        check(text, keys, rules, now)
    assert caught.value.param == "token"
    return caught.value


def written_otherwise() -> str:
    """Return the same signature in another spelling: some bits of its last character decode to nothing."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return f"{_HEAD}.{_BODY}.{_SIGN[:-1]}{alphabet[alphabet.index(_SIGN[-1]) ^ 1]}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_good_token_gives_the_subject_and_its_expiry(algorithm: Algorithm) -> None:
    assert check(token(algorithm)) == Identity("demo", "alice", (NOW_UNIX_S + 60) * 1_000)


BAD = {
    "nothing": "",
    "one segment": "a",
    "two segments": f"{_HEAD}.{_BODY}",
    "four segments": f"{token()}.{_SIGN}",
    "five segments, as an encrypted one has": f"{_HEAD}.a.b.c.{_SIGN}",
    "no signature": f"{_HEAD}.{_BODY}.",
    "a truncated signature": token()[:-1],
    "a longer signature": token() + "A",
    "whitespace before": " " + token(),
    "whitespace after": token() + "\n",
    "whitespace within": f"{_HEAD} .{_BODY}.{_SIGN}",
    "Bearer": "Bearer " + token(),
    "padding": token() + "=",
    "no ASCII": token() + "é",
    "standard base64's alphabet": f"{_HEAD}.{_BODY}.{'+' + _SIGN[1:]}",
    "the same signature in other characters": written_otherwise(),
    "another's signature": f"{_HEAD}.{_BODY}.{token(sub='bob').split('.')[2]}",
    "another's claims": f"{_HEAD}.{token(sub='bob').split('.')[1]}.{_SIGN}",
    "a header that is no JSON": by_hand(b"{", claims()),
    "a header that is no object": by_hand([], claims()),
    "a header that is no UTF-8": by_hand(b'{"alg":"\xff"}', claims()),
    "no algorithm": by_hand({"typ": "JWT"}, claims()),
    "alg none": f"{segment({'alg': 'none'})}.{segment(claims())}.",
    "alg none with a signature": by_hand({"alg": "none"}, claims()),
    "alg nOnE": by_hand({"alg": "nOnE"}, claims()),
    "alg empty": by_hand({"alg": ""}, claims()),
    "alg null": by_hand({"alg": None}, claims()),
    "alg a list": by_hand({"alg": ["HS256"]}, claims()),
    "alg hs256": by_hand({"alg": "hs256"}, claims()),
    "alg HS512": by_hand({"alg": "HS512"}, claims()),
    "alg PS256": by_hand({"alg": "PS256", "kid": "rsa"}, claims()),
    "the RSA key as secret": by_hand(HS | {"kid": "rsa"}, claims(), public_pem(RSA)),
    "the EC key as secret": by_hand(HS | {"kid": "ec"}, claims(), public_pem(EC)),
    "the Ed25519 key as secret": by_hand(HS | {"kid": "ed"}, claims(), ED.public_key().public_bytes_raw()),
    "RS256 in the header over HMAC": by_hand({"alg": "RS256", "kid": "rsa"}, claims()),
    "an RSA key for ES256": by_hand({"alg": "ES256", "kid": "rsa"}, claims()),
    "an EC key for EdDSA": by_hand({"alg": "EdDSA", "kid": "ec"}, claims()),
    "an empty secret": by_hand(HS, claims(), b""),
    "another secret": by_hand(HS, claims(), SECRET[:-1]),
    "kid unknown": token("RS256", headers={"kid": "nobody"}),
    "kid a path": token("RS256", headers={"kid": "../../../../dev/null"}),
    "kid a file": token("RS256", headers={"kid": "/etc/passwd"}),
    "kid SQL": token("RS256", headers={"kid": "x' UNION SELECT 'a"}),
    "kid empty": token("RS256", headers={"kid": ""}),
    "kid a number": by_hand({"alg": "RS256", "kid": 1}, claims()),
    "kid of another case": token("RS256", headers={"kid": "RSA"}),
    "its own key in jwk": by_hand({"alg": "RS256", "jwk": jwk(RSA), "kid": "mine"}, claims()),
    "its own address in jku": token("EdDSA", headers={"kid": "mine", "jku": "https://evil.example/keys"}),
    "crit": by_hand(HS | {"crit": ["exp"]}, claims()),
    "crit empty": by_hand(HS | {"crit": []}, claims()),
    "b64 false": by_hand(HS | {"crit": ["b64"], "b64": False}, claims()),
    "expired": token(exp=NOW_UNIX_S - 5),
    "exp long ago": token(exp=0),
    "exp missing": token(exp=None),
    "exp a string": by_hand(HS, claims(exp=str(NOW_UNIX_S + 60))),
    "exp true": by_hand(HS, claims(exp=True)),
    "exp infinite": by_hand(HS, b'{"iss":"replyline","aud":"replyline","exp":1e999,"sub":"alice","tenant":"demo"}'),
    "exp NaN": by_hand(HS, claims(exp=float("nan"))),
    "exp in milliseconds": token(exp=NOW_UNIX_S * 1_000),
    "exp without end": by_hand(HS, claims(exp=10**400)),
    "exp negative": by_hand(HS, claims(exp=-1)),
    "nbf to come": token(nbf=NOW_UNIX_S + 6),
    "nbf without end": by_hand(HS, claims(nbf=10**400)),
    "nbf a string": by_hand(HS, claims(nbf="0")),
    "iat to come": token(iat=NOW_UNIX_S + 6),
    "another issuer": token(iss="https://evil.example"),
    "iss missing": token(iss=None),
    "iss a list": by_hand(HS, claims(iss=["replyline"])),
    "iss of another case": token(iss="Replyline"),
    "iss with a slash more": token(iss="replyline/"),
    "another audience": token(aud="billing"),
    "a list of other audiences": token(aud=["billing", "replyline2"]),
    "an empty list of audiences": by_hand(HS, claims(aud=[])),
    "a list of audiences with a number": by_hand(HS, claims(aud=["replyline", 1])),
    "aud an object": by_hand(HS, claims(aud={"replyline": 1})),
    "aud missing": token(aud=None),
    "sub missing": token(sub=None),
    "sub empty": token(sub=""),
    "sub blank": token(sub=" "),
    "sub with a line's end": token(sub="alice\n"),
    "sub with a NUL": token(sub="alice\x00bob"),
    "sub a number": by_hand(HS, claims(sub=7)),
    "sub too long": token(sub="a" * 256),
    "tenant missing": token(tenant=None),
    "tenant a number": token(tenant=7),
    "tenant a list": token(tenant=["demo"]),
    "tenant empty": token(tenant=""),
    "tenant with a slash": token(tenant="demo/alice"),
    "tenant with a brace": token(tenant="demo}{other"),
    "tenant with a line's end": token(tenant="demo\n"),
    "tenant too long": token(tenant="d" * 65),
    "claims that are no JSON": by_hand(HS, b"{"),
    "claims that are a list": by_hand(HS, [claims()]),
    "claims that are no UTF-8": by_hand(HS, b'{"iss":"\xff"}'),
    "claims nested deeply": by_hand(HS, b"[" * 3_000),
    "an unknown claim nested deeply": by_hand(HS, b'{"x":' + b"[" * 3_000),
    "an unknown header nested deeply": by_hand(b'{"alg":"HS256","x":' + b"[" * 3_000, claims()),
    "too long": token(padding="x" * 8_192),
}


def refuse(name: str) -> None:
    error = refusal(BAD[name])
    expired = name in {"expired", "exp long ago"}
    assert error.kind == "authentication_error"
    assert error.code == ("token_expired" if expired else "unauthorized")
    assert not error.retriable
    assert not any(part in str(error) for part in BAD[name].split(".") if len(part) > 8)
    assert not any(word in str(error) for word in ("alice", "evil", "passwd", "nobody"))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_token_is_refused_and_never_repeated(name: str) -> None:
    """No refusal has a part of the token in it."""
    refuse(name)


@pytest.mark.promise(16)
def test_all_kinds_of_bad_tokens_are_refused(reliability: Reliability) -> None:
    for name in BAD:
        refuse(name)
    reliability.found(figure=f"{len(BAD)} kinds refused", target="25 refused", holds=len(BAD) >= 25)


@pytest.mark.parametrize(
    "text",
    [
        token(aud=["billing", "replyline"]),
        token(nbf=NOW_UNIX_S - 1, iat=NOW_UNIX_S - 1, jti="x", scope="chat", headers={"typ": "at+jwt"}),
        token(headers={"kid": "rsa"}),  # the secret has no name, and is found under any
    ],
)
def test_unknown_claims_of_a_token_are_ignored(text: str) -> None:
    """Its audience may be one of several."""
    assert check(text).subject == "alice"


def test_an_algorithm_that_no_key_is_of_is_refused() -> None:
    for algorithm in ALGORITHMS:
        others = KeySet(tuple(key for key in KEYS.keys if key.algorithm != algorithm))
        assert refusal(token(algorithm), keys=others).code == "unauthorized"
        assert check(token(algorithm), keys=KeySet(tuple(key for key in KEYS.keys if key.algorithm == algorithm)))


def test_clocks_may_differ_by_the_leeway() -> None:
    """A token that has expired by our clock only lasts for the leeway, no longer."""
    assert check(token(exp=NOW_UNIX_S - 4)).expires_unix_ms == NOW_UNIX_MS + 1_000
    assert check(token(nbf=NOW_UNIX_S + 5, iat=NOW_UNIX_S + 5))
    strict = dataclasses.replace(RULES, leeway_ms=0)
    assert check(token(exp=NOW_UNIX_S + 1), rules=strict).expires_unix_ms == NOW_UNIX_MS + 1_000
    assert refusal(token(exp=NOW_UNIX_S), rules=strict).code == "token_expired"
    assert refusal(token(nbf=NOW_UNIX_S + 1), rules=strict).code == "unauthorized"


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_without_key_id_is_checked_by_the_only_key_of_its_algorithm(algorithm: Algorithm) -> None:
    unnamed = token(algorithm, headers={"kid": None})
    assert check(unnamed).subject == "alice"
    twice = KeySet(parse_jwks(jwks(*(jwk(PRIVATE[algorithm], kid=kid) for kid in ("a", "b")))))
    assert refusal(unnamed, twice).code == "unauthorized"


def test_a_key_that_may_be_among_unreadable_ones_is_retriable() -> None:
    known = KeySet(KEYS.keys, complete=False)
    error = refusal(token("RS256", headers={"kid": "new"}), known)
    assert (error.code, error.kind, error.retriable) == ("keys_unavailable", "server_error", True)
    assert check(token("RS256"), known).subject == "alice"
    assert refusal(by_hand(HS, claims(), b"x" * 32), KeySet(complete=False)).code == "unauthorized"


def test_only_an_unknown_public_key_is_worth_reading_the_keys_again() -> None:
    assert lacks_key(token("ES256", headers={"kid": "new"}), KEYS, RULES)
    assert lacks_key(token("ES256"), KeySet((secret_key(SECRET),)), RULES)
    for text in (token("ES256"), token(), by_hand(HS, claims(), b"x"), "nonsense", BAD["alg none"], BAD["too long"]):
        assert not lacks_key(text, KEYS, RULES)
    assert not lacks_key(token(), KeySet(), RULES)


# --- any change


@given(data=st.data())
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_with_any_byte_changed_is_refused(data: st.DataObject, algorithm: Algorithm) -> None:
    good = _GOOD[algorithm]
    place = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.characters(max_codepoint=0x17F).filter(lambda c: c != good[place]))
    refusal(good[:place] + byte + good[place + 1 :])


@given(data=st.data())
def test_a_token_with_anything_cut_out_repeated_or_put_in_is_refused(data: st.DataObject) -> None:
    good = _GOOD["HS256"]
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(good)), st.integers(0, len(good)))))
    put = data.draw(st.text("abcXYZ019-_.= \n", max_size=5))
    changed = good[:start] + put + good[end:]
    if changed != good:
        refusal(changed)


_GOOD = {algorithm: token(algorithm) for algorithm in ALGORITHMS}


@given(st.text() | st.binary(max_size=200).map(b64) | st.lists(st.binary(max_size=60).map(b64)).map(".".join))
def test_any_token_is_accepted_or_refused_with_a_protocol_error(text: str) -> None:
    refusal(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.dictionaries(st.sampled_from(["iss", "aud", "exp", "sub", "tenant", "nbf", "iat"]), JSON))
def test_signed_claims_of_any_kind_are_accepted_or_refused_and_nothing_else(changed: dict[str, Any]) -> None:
    text = by_hand(HS, claims() | changed)
    try:
        identity = check(text)
    except ProtocolError:
        return
    given_tenant = changed.get("tenant", "demo")
    assert (identity.tenant, identity.subject) == (given_tenant, changed.get("sub", "alice"))
    assert identity.expires_unix_ms > NOW_UNIX_MS
