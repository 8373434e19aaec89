"""Request records as a gateway writes them, made of pre-encoded parts: a fresh id and session put between. Pure.

Everything else of a record (the text, the limits, the deadlines) is encoded once for many, and again when its times
have grown old.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from ops.texts.prompts import LENGTHS, question
from shared.records.requests import Defaults, request_headers, settle
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Bucket, ChatRequest
from shared.wire.topics import CE_ID, BucketEdges, TopicNames, session_key

SOURCE: Final = "replyline-bench"
# As long as a gateway's, which are 24 hexadecimal digits behind a word.
_ID: Final = "bench_" + "0" * 24
_SESSION: Final = "bench-" + "f" * 12
_TEXTS: Final = 128

Header = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Template:
    """A record's parts: `head` id `middle` session `tail` is the value; `headers` are all but the id's."""

    topic: str
    bucket: Bucket
    key_head: bytes
    head: bytes
    middle: bytes
    tail: bytes
    headers: tuple[Header, ...]

    def value(self, request_id: bytes, session: bytes) -> bytes:
        return self.head + request_id + self.middle + session + self.tail

    def key(self, session: bytes) -> bytes:
        return self.key_head + session


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What is asked: texts of the mix's lengths, of so many `sessions`, each text in the bucket of its length."""

    topics: TopicNames
    defaults: Defaults
    edges: BucketEdges
    mix: dict[str, float]
    max_output_tokens: int
    seed: int = 0

    def templates(self, now_unix_ms: float) -> list[Template]:
        """One for each text, created now, in an order by the seed."""
        lengths = _apportioned(self.mix, self.seed)
        texts = (question(tokens, self.seed * _TEXTS + number) for number, tokens in enumerate(lengths))
        return [self._template(text, tokens, now_unix_ms) for text, tokens in zip(texts, lengths, strict=True)]

    def _template(self, text: str, tokens: int, now_unix_ms: float) -> Template:
        now, promise = int(now_unix_ms), self.defaults
        request = ChatRequest(
            id=_ID,
            session_id=_SESSION,
            input=text,
            tenant=promise.tenant,
            max_output_tokens=self.max_output_tokens,
            created_unix_ms=now,
            deadline_unix_ms=now + promise.deadline_ms,
            first_token_unix_ms=now + promise.first_token_ms,
            reply_topic=self.topics.external_replies,
        )
        headers = request_headers(settle(request, promise, now), source=SOURCE)
        head, rest = _cut(msgpack_encode(request), _ID)
        middle, tail = _cut(rest, _SESSION)
        bucket = self.edges.bucket_of(tokens)
        return Template(
            topic=self.topics.requests(bucket),
            bucket=bucket,
            key_head=session_key(promise.tenant, ""),
            head=head,
            middle=middle,
            tail=tail,
            headers=tuple((name, value) for name, value in headers.items() if name != CE_ID),
        )


def request_id(run: int, number: int) -> bytes:
    """Of a run's request; `run` tells processes and runs apart."""
    return b"bench_%08x%016x" % (run, number)


def session_id(number: int) -> bytes:
    return b"bench-%012x" % number


def _apportioned(mix: dict[str, float], seed: int) -> list[int]:
    """Each part of the mix has its share of the texts, one at least, in a drawn order."""
    shares = {name: max(1, round(share * _TEXTS)) for name, share in mix.items() if share > 0}
    lengths = [LENGTHS[name] for name, count in shares.items() for _ in range(count)]
    Random(seed).shuffle(lengths)
    return lengths


def _cut(encoded: bytes, placeholder: str) -> tuple[bytes, bytes]:
    head, found, rest = encoded.partition(placeholder.encode())
    assert found, "the placeholder stands in what was just encoded"
    return head, rest
