"""Each block of commands on a page is typed by a test, or listed with the reason why none types it."""

import re

import pytest

from tests.proofs.lifecycle.test_page import blocks
from tests.support.typed_pages import ALL, LIFECYCLE, ROOT, TYPED, Block

TESTS = {value for value in TYPED.values() if re.fullmatch(r"tests/\S+\.py", value)}


@pytest.mark.parametrize("block", ALL, ids=lambda block: block.name)
def test_a_block_is_listed(block: Block) -> None:
    assert block.key is not None, f"list {block.name!r} in tests/support/typed_pages.py, or type it there"


def test_no_block_is_listed_that_no_page_has() -> None:
    assert set(TYPED) == {block.key for block in ALL}


@pytest.mark.parametrize("test", sorted(TESTS))
def test_a_test_that_is_listed_is_there(test: str) -> None:
    assert (ROOT / test).is_file()


def test_the_lifecycles_page_is_listed_as_typed_for_the_blocks_that_its_test_types() -> None:
    listed = [block.text for block in ALL if TYPED.get(block.key or "") == LIFECYCLE]
    assert listed == blocks("A run to repeat")


def test_a_block_of_another_kind_is_no_command() -> None:
    first = {block.text.split()[0] for block in ALL}
    assert first.isdisjoint({"from", "import", "const", "rollout", "replyline:", "[[promotion]]", "needs"})
    assert {"make", "replyline", "docker", "kubectl", "openssl", "promtool"} <= first
