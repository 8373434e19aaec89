"""Name blocks of KV with a hash chain over tenant, layout and tokens. Pure.

A name depends on everything that the block's KV depends on: `root = H(salt, layout, block_tokens, tenant)`, `name_i =
H(name_{i-1}, tokens_i)`, as in vLLM's prefix caching. From the first block with any text besides the shop's own, the
conversation's name is mixed in, so that these blocks belong to it alone: erasing needs no reference counts, and timing
cannot reveal what others have said.

The tokens after the last full block are the tail: named in the same way from fewer tokens, and always private. A tail
is found by its tokens: for the first block that is not stored, every shorter beginning may be a stored tail.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from shared.wire.session_key import SessionKey

NAME_BYTES: Final = 16
BLOCK_TOKENS: Final = 32  # tokens that are named, stored and dropped together
_TOKEN_BYTES: Final = 4
_ROOT: Final = b"replyline root"  # BLAKE2's `person`, so that no name equals a root or a conversation's beginning
_SESSION: Final = b"replyline talk"


class Block(NamedTuple):
    """The KV of tokens `start .. stop-1`. A shared block may be read by all of the tenant's conversations."""

    name: bytes
    start: int
    stop: int
    shared: bool


@dataclass(frozen=True, slots=True)
class BlockRun:
    """The first `num_tokens` tokens of a chain, in blocks without a gap; the last may be a tail."""

    blocks: tuple[Block, ...]
    num_tokens: int

    @property
    def names(self) -> tuple[bytes, ...]:
        return tuple(block.name for block in self.blocks)


class BlockNamer:
    """Names blocks.

    Args:
        salt: the installation's salt.
        layout_id: identifies everything besides the tokens that a value depends on: model, revision, precision, the
            engine's KV layout, the codec.
        block_tokens: tokens in a full block.
    """

    __slots__ = ("_block_tokens", "_prefix")

    def __init__(self, *, salt: bytes, layout_id: str, block_tokens: int) -> None:
        if block_tokens < 1:
            raise ValueError(f"block_tokens is {block_tokens}; give at least 1")
        self._block_tokens = block_tokens
        self._prefix = b"".join(_measured(part) for part in (salt, layout_id.encode(), b"%d" % block_tokens))

    def chain(self, session: SessionKey, token_ids: Sequence[int], shared_tokens: int) -> "BlockChain":
        """Name the blocks of `token_ids` (each 0 to 2^31-1). The first `shared_tokens` contain only the shop's text.

        2,000 tokens in blocks of 32 take about 0.2 ms.
        """
        root = blake2b(self._prefix + session.tenant.encode(), digest_size=NAME_BYTES, person=_ROOT).digest()
        size = self._block_tokens
        data = _packed(token_ids)
        num_shared = min(max(shared_tokens, 0), len(token_ids)) // size
        names = _named(root, data[: num_shared * size * _TOKEN_BYTES], size)
        blocks = [Block(name, at * size, (at + 1) * size, shared=True) for at, name in enumerate(names)]
        last = names[-1] if names else root
        own = blake2b(last + session.session_id.encode(), digest_size=NAME_BYTES, person=_SESSION).digest()
        return BlockChain(blocks, data, session=own, block_tokens=size).extended(())


class BlockChain:
    """The named blocks of one conversation's tokens: first the shared ones, then the private ones, then the tail if
    any."""

    __slots__ = ("_block_tokens", "_data", "_session", "blocks", "names")

    def __init__(self, blocks: Iterable[Block], data: bytes, *, session: bytes, block_tokens: int) -> None:
        self.blocks = tuple(blocks)
        self.names = tuple(block.name for block in self.blocks)
        self._data = data
        self._session = session
        self._block_tokens = block_tokens

    @property
    def num_tokens(self) -> int:
        return len(self._data) // _TOKEN_BYTES

    def extended(self, token_ids: Sequence[int]) -> "BlockChain":
        """Return the chain with more (private) tokens at its end.

        The result equals naming all tokens together, but full blocks are not named again.
        """
        size = self._block_tokens
        data = self._data + _packed(token_ids)
        full = [block for block in self.blocks[-1:] if block.stop - block.start == size]
        blocks = [*self.blocks[:-1], *full]
        start = len(blocks) * size
        stop = len(data) // _TOKEN_BYTES
        names = _named(self._parent(blocks), data[start * _TOKEN_BYTES :], size)
        for name in names:
            blocks.append(Block(name, start, min(start + size, stop), shared=False))
            start += size
        return BlockChain(blocks, data, session=self._session, block_tokens=size)

    def longest_run(self, held: Container[bytes]) -> BlockRun:
        """Return the longest beginning whose blocks are all in `held` (a set, for speed).

        If a full block or the tail is not in `held`, the longest beginning of it that was stored as a tail is included.
        """
        count = 0
        for name in self.names:
            if name not in held:
                break
            count += 1
        blocks = self.blocks[:count]
        if count < len(self.blocks) and not self.blocks[count].shared:
            blocks += self._kept_tail(self.blocks[count], held)
        return BlockRun(blocks, blocks[-1].stop if blocks else 0)

    def missing(self, held: Container[bytes]) -> tuple[Block, ...]:
        """Return the blocks that are not in `held` and have to be written."""
        return tuple(block for block in self.blocks if block.name not in held)

    def stale(self, held: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return the names in `held` that are not part of this chain and can be dropped."""
        names = set(self.names)
        return tuple(name for name in held if name not in names)

    def _kept_tail(self, block: Block, held: Container[bytes]) -> tuple[Block, ...]:
        parent = self._parent(self.blocks[: block.start // self._block_tokens])
        first = block.start * _TOKEN_BYTES
        for stop in range(block.stop - 1, block.start, -1):
            name = blake2b(parent + self._data[first : stop * _TOKEN_BYTES], digest_size=NAME_BYTES).digest()
            if name in held:
                return (Block(name, block.start, stop, shared=False),)
        return ()

    def _parent(self, blocks: Sequence[Block]) -> bytes:
        """Return the name from which the next private block's name is made."""
        return blocks[-1].name if blocks and not blocks[-1].shared else self._session


def unbroken(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return the blocks that follow each other without a gap from the first token."""
    following: list[Block] = []
    stop = 0
    for block in blocks:
        if block.start != stop:
            break
        following.append(block)
        stop = block.stop
    return tuple(following)


def _named(parent: bytes, data: bytes, block_tokens: int) -> list[bytes]:
    """Return the names of consecutive blocks; the last block may be shorter."""
    size = block_tokens * _TOKEN_BYTES
    names: list[bytes] = []
    for at in range(0, len(data), size):
        parent = blake2b(parent + data[at : at + size], digest_size=NAME_BYTES).digest()
        names.append(parent)
    return names


def _packed(token_ids: Sequence[int]) -> bytes:
    return np.array(token_ids, dtype="<i4").tobytes()


def _measured(part: bytes) -> bytes:
    return len(part).to_bytes(4, "little") + part
