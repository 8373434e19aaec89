"""Names of KV blocks: equal exactly if tenant, layout and tokens are, private from a customer's first word on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.wire.session_key import SessionKey
from workers.kv.blocks import Block, BlockChain, BlockNamer, BlockRun

SIZE = 4
IDS = st.lists(st.integers(0, 3), max_size=30)
SHARED = st.integers(0, 30)
NAMER = BlockNamer(salt=b"salt", layout_id="model/30x2", block_tokens=SIZE)


def chain(ids: list[int], shared: int = 0, *, tenant: str = "shop", session: str = "s") -> BlockChain:
    return NAMER.chain(SessionKey(tenant, session), ids, shared)


@given(ids=IDS, shared=SHARED)
def test_blocks_cover_all_tokens_in_order_and_only_full_ones_of_the_shops_words_are_shared(
    ids: list[int], shared: int
) -> None:
    made = chain(ids, shared)
    assert made.num_tokens == len(ids)
    assert [token for block in made.blocks for token in ids[block.start : block.stop]] == ids
    for block in made.blocks:
        assert block.start % SIZE == 0
        assert block.stop == min(block.start + SIZE, len(ids))
        assert block.shared == (block.stop - block.start == SIZE and block.stop <= shared)
    assert made.names == tuple(block.name for block in made.blocks)
    assert len(set(made.names)) == len(made.names)


@given(one=IDS, other=IDS, shared=SHARED)
def test_names_are_equal_exactly_as_far_as_the_tokens_are(one: list[int], other: list[int], shared: int) -> None:
    first, second = chain(one, shared), chain(other, shared)
    both = dict(zip(first.names, first.blocks, strict=True))
    for name, block in zip(second.names, second.blocks, strict=True):
        counterpart = both.get(name)
        same = one[: block.stop] == other[: block.stop] and any(
            (found.start, found.stop, found.shared) == (block.start, block.stop, block.shared) for found in first.blocks
        )
        assert (counterpart is not None) == same
        assert counterpart in (None, block)


@given(ids=IDS, shared=SHARED)
def test_in_common_are_shared_blocks_with_another_session_and_none_with_another_tenant_salt_layout_or_block_size(
    ids: list[int], shared: int
) -> None:
    mine, theirs = chain(ids, shared), chain(ids, shared, session="t")
    assert set(mine.names) & set(theirs.names) == {block.name for block in mine.blocks if block.shared}
    names = set(chain(ids, shared).names)
    for tenant, session in (("rival", "s"), ("sho", "ps"), ("shops", "")):
        assert not names & set(chain(ids, shared, tenant=tenant, session=session).names)
    for other in (
        BlockNamer(salt=b"", layout_id="model/30x2", block_tokens=SIZE),
        BlockNamer(salt=b"salt", layout_id="model/30x4", block_tokens=SIZE),
        BlockNamer(salt=b"salt", layout_id="model/30x2", block_tokens=SIZE * 8),
        BlockNamer(salt=b"saltm", layout_id="odel/30x2", block_tokens=SIZE),
    ):
        assert not names & set(other.chain(SessionKey("shop", "s"), ids, shared).names)


@given(ids=IDS, more=st.lists(IDS, max_size=4), shared=SHARED)
def test_a_chain_that_was_extended_is_the_chain_of_all_its_tokens(
    ids: list[int], more: list[list[int]], shared: int
) -> None:
    shared = min(shared, len(ids))
    extended = chain(ids, shared)
    for part in more:
        extended = extended.extended(part)
    whole = chain([*ids, *(token for part in more for token in part)], shared)
    assert extended.blocks == whole.blocks
    assert extended.num_tokens == whole.num_tokens


def run_by_hand(made: BlockChain, ids: list[int], shared: int, held: set[bytes]) -> BlockRun:
    """Slow and plain: full blocks as long as they are held, then the longest beginning of the next one that is."""
    blocks: list[Block] = []
    for block in made.blocks:
        if block.name in held:
            blocks.append(block)
            continue
        for stop in range(block.stop, block.start, -1):
            tail = chain(ids[:stop], min(shared, block.start)).blocks[-1]
            if tail.name in held and not block.shared:
                blocks.append(tail)
                break
        break
    return BlockRun(tuple(blocks), blocks[-1].stop if blocks else 0)


@given(ids=IDS, shared=SHARED, data=st.data())
def test_the_longest_run_is_found_with_the_tail_that_was_kept(ids: list[int], shared: int, data: st.DataObject) -> None:
    """What is held: blocks of this prompt, and tails of its beginnings, any of them gone."""
    made = chain(ids, shared)
    tails = [chain(ids[:stop], min(shared, stop)).names[-1] for stop in range(1, len(ids) + 1)]
    held = set(data.draw(st.lists(st.sampled_from([*made.names, *tails] or [b""]))))
    assert made.longest_run(held) == run_by_hand(made, ids, shared, held)


@given(said=IDS, asked=IDS, shared=SHARED)
def test_a_turns_blocks_are_found_by_the_next_turns_longer_prompt(
    said: list[int], asked: list[int], shared: int
) -> None:
    shared = min(shared, len(said))
    held = set(chain(said, shared).names)
    run = chain([*said, *asked], shared).longest_run(held)
    assert run.num_tokens == len(said)
    assert set(run.names) == held


@given(old=IDS, new=IDS, shared=SHARED)
def test_writing_what_is_missing_and_dropping_what_is_stale_leaves_the_chain(
    old: list[int], new: list[int], shared: int
) -> None:
    held = set(chain(old, shared).names)
    made = chain(new, shared)
    written = {block.name for block in made.missing(held)}
    dropped = set(made.stale(held))
    assert not written & held
    assert dropped <= held
    assert (held - dropped) | written == set(made.names)


def test_blocks_of_no_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="block_tokens is 0; give at least 1"):
        BlockNamer(salt=b"", layout_id="", block_tokens=0)
