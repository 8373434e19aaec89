"""A record that cannot be read whole still names who waits for its end."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ProtocolError
from shared.wire.requests import names_in, open_request
from tests.unit.gateway.entrances.table import RECORD


@pytest.mark.parametrize(
    "broken",
    ['"input": "where is', '"input": "a",}', '"input": "a" // note\n}', '"max_output_tokens": 0x4b}', "'input': 'a'}"],
)
@pytest.mark.parametrize("form", ["{}", "\ufeff{}", "[{}"])
def test_a_record_that_breaks_off_still_names_its_asker(broken: str, form: str) -> None:
    beginning = (
        '{ "type": "chat.request", "metadata": {"id": "m"}, "id": "r1",\n"SessionId": "s1", "reply_topic": "t", '
    )
    value = form.replace("{}", beginning + broken).encode()
    with pytest.raises(ProtocolError):
        open_request(value, {})
    names = names_in(value, {}, None)
    assert names is not None
    assert (names.id, names.session_id, names.reply_topic) == ("r1", "s1", "t")


@pytest.mark.parametrize(("num_bytes", "is_named"), [(60_000, True), (70_000, False)])
def test_the_first_64_kib_of_a_broken_record_are_searched(num_bytes: int, is_named: bool) -> None:
    value = b'{"input": "%s", "id": "r1", "session_id": "s1",' % (b"x" * num_bytes)
    assert (names_in(value, {}, None) is not None) == is_named


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_name_an_asker_or_none(data: bytes) -> None:
    for value in (data, b"{" + data, b'{"id": "r1", ' + data):
        names_in(value, {}, None)


def test_a_record_is_read_in_utf_16_and_from_a_packed_list() -> None:
    read = open_request(json.dumps(RECORD).encode(), {})
    whole = msgspec.json.decode(msgspec.json.encode(read))
    assert open_request(json.dumps(whole).encode("utf-16-be"), {}) == read
    assert open_request(msgspec.msgpack.encode([whole]), {}) == read
