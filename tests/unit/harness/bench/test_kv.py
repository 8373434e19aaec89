"""The bench of the cache: its ratios, what it reads of a worker, its tables and options."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ops.texts.conversations import choose, load_conversations
from shared.errors import SettingsError
from shared.model.folder import Architecture
from tests.bench.kv.client import Answered, Conversed
from tests.bench.kv.counters import counters_of, grown
from tests.bench.kv.program import KvOptions
from tests.bench.kv.ratios import (
    FAKE_LAYOUT,
    Written,
    answer_room,
    bytes_per_token,
    layout_of,
    median_ratio,
    middle,
    ratio,
    worst,
    write_ratio,
    write_saved,
)
from tests.bench.kv.table import Cells, ratios_of, show_cells
from tests.bench.kv.ttft import Level, cell_of
from tests.bench.kv.whole import WholeRound, parts, run_of
from tests.bench.kv.write import rows_of

OPTIONS = KvOptions(
    conversations=24,
    rounds=3,
    clients=8,
    max_output_tokens=48,
    cells=("ttft", "whole"),
    peer=None,
    json_path=None,
)
SMOLLM2 = Architecture(
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    hidden_size=576,
    intermediate_size=1_536,
    vocab_size=49_152,
    max_positions=8_192,
    rope_theta=100_000.0,
    norm_epsilon=1e-5,
    tied_embedding=True,
)


def answered(**fields: Any) -> Answered:
    made: dict[str, Any] = {"turn": 1, "question": "?", "source": "model", "status": "completed", "reason": "stop"}
    return Answered(**(made | fields))


# --- ratios


def test_a_ratio_of_what_was_not_measured_is_none() -> None:
    """So it is never taken for a good one."""
    assert ratio(1.0, 4.0) == 0.25
    assert ratio(None, 4.0) is None
    assert ratio(1.0, None) is None
    assert ratio(1.0, 0.0) is None
    assert median_ratio([]) is None
    assert middle([None]) is None
    assert worst([0.1, None]) is None
    assert worst([0.1, 0.2]) == 0.2


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9), st.floats(0.1, 10.0))
def test_rounds_are_compared_each_with_its_own_baseline(speeds: list[float], factor: float) -> None:
    """A machine that is slower in one round is so for both: the ratio stays."""
    assert median_ratio([(speed * factor, speed) for speed in speeds]) == pytest.approx(factor)


@pytest.mark.parametrize(("precision", "expected"), [("exact", 46_080), ("fp16", 23_040), ("int8", 12_240)])
def test_the_bytes_of_a_token_are_those_of_the_codec(precision: Any, expected: int) -> None:
    """SmolLM2-135M: 30 layers, key and value, 3 heads of 64; int8 has an fp32 scale for each of these 180 rows."""
    assert bytes_per_token(layout_of(SMOLLM2), precision) == expected
    assert bytes_per_token(FAKE_LAYOUT, precision) == 8


def test_a_turn_that_writes_its_new_tokens_has_ratio_one() -> None:
    """And saves the share of the conversation that was there before."""
    turns = [
        Written(turn=1, new_tokens=200, session_tokens=200, num_bytes=2_000),
        Written(turn=2, new_tokens=100, session_tokens=300, num_bytes=1_000),
    ]
    assert write_ratio(turns, 10) == 1.0
    assert write_saved(turns, 10) == pytest.approx(0.4)
    assert write_saved(turns[1:], 10) == pytest.approx(2 / 3)
    assert write_ratio([], 10) is None
    assert write_saved([], 10) is None


def test_a_cache_that_writes_nothing_has_no_ratio() -> None:
    """It would else be the best there is."""
    turns = [Written(turn=1, new_tokens=200, session_tokens=200, num_bytes=0)]
    assert write_ratio(turns, 10) is None
    assert write_saved(turns, 10) is None


def test_writes_are_told_by_turn_and_of_all() -> None:
    """The average conversation's; all turns together come last."""
    rows = rows_of(
        [
            Written(turn=1, new_tokens=200, session_tokens=200, num_bytes=2_000),
            Written(turn=1, new_tokens=100, session_tokens=100, num_bytes=1_400),
            Written(turn=2, new_tokens=50, session_tokens=250, num_bytes=600),
        ],
        10,
    )
    assert [(row.turn, row.turns) for row in rows] == [(1, 2), (2, 1), (None, 3)]
    assert rows[0].new_tokens == 150
    assert rows[0].written_bytes == 1_700
    assert rows[1].ratio == 1.2
    assert rows[1].saved == 0.76
    assert rows_of([], 10) == []


@given(target=st.integers(0, 2_000), used=st.integers(0, 2_000), ahead=st.integers(0, 2_000), answers=st.integers(1, 6))
def test_answers_are_as_long_as_the_wanted_context_needs(target: int, used: int, ahead: int, answers: int) -> None:
    """All of the remaining ones together fill what is left, within the bounds."""
    room = answer_room(target=target, used=used, to_be_asked=ahead, answers=answers, least=16, most=256)
    left = target - used - ahead
    assert 16 <= room <= 256
    if 16 * answers <= left <= 256 * answers:
        assert left - answers < room * answers <= left


@given(st.integers(1, 40), st.integers(1, 12))
def test_rounds_share_the_conversations_out(count: int, rounds: int) -> None:
    """Each is in one round; none has more than one more than another."""
    conversations = choose(load_conversations(), count)
    shared = parts(conversations, rounds)
    assert [one for part in shared for one in part] == conversations
    assert len(shared) == rounds
    assert max(map(len, shared)) - min(map(len, shared)) <= 1


# --- what was counted


def test_a_workers_totals_are_read_by_their_labels() -> None:
    """Tokens, and all counters of the cache; no gauge, no histogram, nothing else's."""
    registry = CollectorRegistry()
    Counter("replyline_worker_prompt_tokens_total", "", registry=registry).inc(120)
    Counter("replyline_kv_written_bytes_total", "", registry=registry)
    dropped = Counter("replyline_kv_dropped_total", "", ["reason"], registry=registry)
    dropped.labels("checksum").inc(2)
    dropped.labels("length").inc(3)
    Gauge("replyline_kv_host_bytes", "", registry=registry).set(7)
    Histogram("replyline_kv_load_seconds", "", registry=registry).observe(1)
    Counter("replyline_worker_skipped_total", "", registry=registry).inc()
    before = counters_of(generate_latest(registry).decode())
    assert before == {
        "replyline_worker_prompt_tokens_total": 120.0,
        "replyline_kv_written_bytes_total": 0.0,
        "replyline_kv_dropped_total checksum": 2.0,
        "replyline_kv_dropped_total length": 3.0,
    }
    dropped.labels("codec").inc()
    after = counters_of(generate_latest(registry).decode())
    assert grown(before, after) == {
        "replyline_worker_prompt_tokens_total": 0.0,
        "replyline_kv_written_bytes_total": 0.0,
        "replyline_kv_dropped_total checksum": 0.0,
        "replyline_kv_dropped_total length": 0.0,
        "replyline_kv_dropped_total codec": 1.0,
    }


def test_only_whole_answers_of_the_model_count() -> None:
    """Fallbacks, refusals and what was cut are told apart; every turn is one of them."""
    answers = [
        answered(output_tokens=5, ttft_ms=10.0, prompt_tokens=100),
        answered(status="incomplete", reason="max_output_tokens", output_tokens=48, ttft_ms=30.0),
        answered(status="incomplete", reason="deadline"),
        answered(source="faq"),
        answered(source="busy"),
        answered(source=None, status=None, reason=None, error="overloaded"),
    ]
    counted = {"replyline_worker_prompt_tokens_total": 40.0, "replyline_kv_hits_total": 3.0}
    run = run_of("on", Conversed(elapsed_s=2.0, answers=answers), counted)
    assert (run.turns, run.model_answers, run.cut, run.fallbacks, run.refusals) == (6, 2, 1, 2, 1)
    assert run.answers_per_s == 1.0
    assert run.computed_tokens == 40
    assert run.cache == {"replyline_kv_hits_total": 3.0}
    assert run.ttft_ms.p50 == 10.0


# --- what is said


def whole(on_s: float, off_s: float, *, computed: int = 30, peer_s: float | None = None) -> WholeRound:
    answers = [answered(prompt_tokens=10, output_tokens=4, ttft_ms=5.0) for _ in range(10)]

    def run(what: Any, elapsed_s: float, tokens: int) -> Any:
        return run_of(
            what,
            Conversed(elapsed_s=elapsed_s, answers=answers),
            {"replyline_worker_prompt_tokens_total": float(tokens)},
        )

    peer = None if peer_s is None else run("peer", peer_s, 0)
    return WholeRound(on=run("on", on_s, computed), off=run("off", off_s, 100), peer=peer)


def cell(level: Level, ttft_ms: float) -> Any:
    pair = (
        answered(ttft_ms=ttft_ms, prefill_ms=ttft_ms / 2, prompt_tokens=1_000, cached_tokens=900, text="a"),
        answered(ttft_ms=1_000.0, prefill_ms=990.0, prompt_tokens=1_000, text="a"),
    )
    return cell_of(level, [pair, pair, pair], {})


def test_ratios_have_their_keys_and_the_warm_one_is_the_worse() -> None:
    """What scripts read of `--json`."""
    cells = Cells(
        ttft=[cell("slot", 50.0), cell("host", 90.0), cell("redis", 200.0)],
        whole=[whole(1.0, 3.0, peer_s=2.0), whole(2.0, 4.0, peer_s=4.0), whole(1.0, 9.0, peer_s=1.5)],
        write=rows_of([Written(turn=1, new_tokens=10, session_tokens=50, num_bytes=110)], 10),
        down=[whole(1.04, 1.0)],
        slow=[whole(1.2, 1.0)],
    )
    assert msgspec.to_builtins(ratios_of(cells)) == {
        "ttft_ratio_redis": 0.2,
        "ttft_ratio_warm": 0.09,
        "ttft_ratio_slot": 0.05,
        "ttft_ratio_host": 0.09,
        "prefill_share": 0.3,
        "write_ratio": 1.1,
        "write_saved": 0.78,
        "throughput_ratio": 3.0,
        "throughput_vs_peer": 2.0,
        "redis_down_ratio": 1.04,
        "redis_slow_ratio": 1.2,
        "window_ttft_ratio": None,
    }


def test_each_ratio_stands_beside_its_target() -> None:
    """And each cell has its table."""
    cells = Cells(ttft=[cell("redis", 200.0)], whole=[whole(1.0, 2.0)], slow=[whole(1.0, 1.0)])
    said = show_cells(cells, ratios_of(cells))
    assert "| Redis, another worker | 200.00 | 1,000 | 0.2 | 100.00 | 990.00 |" in said
    assert "| cache off | 10 | 10 | 0 | 0 | 0 | 2.00 | 5.00 | 4.00 | 100 | 100 | 5.00 |" in said
    assert "TTFT of turn 5 from Redis, of recomputing: 0.2 (≤ 0.25 met)" in said
    assert "TTFT of turn 5 warm (slot or host memory, the worse): – (≤ 0.1 not measured)" in said
    assert "answers/s, of those without cache: 2.00 (≥ 2.20 missed)" in said
    assert "answers/s, of llama-server's: – (≥ 1.30 not measured)" in said
    assert "time with Redis 100 ms away, of cache off: 1.00 (≤ 1.05 met)" in said


def test_what_was_not_measured_has_no_table() -> None:
    """Only the verdicts say so."""
    said = show_cells(Cells(), ratios_of(Cells()))
    assert "|" not in said
    assert said.count("not measured") == 9


# --- options


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"cells": ("ttft", "speed")}, "--cells speed"),
        ({"cells": ()}, "--cells: name some of"),
        ({"conversations": 0}, "--conversations 0"),
        ({"rounds": 0}, "--rounds 0"),
        ({"rounds": 5, "conversations": 4}, "--rounds 5: is above --conversations 4"),
        ({"clients": 1_000}, "--clients 1000"),
        ({"max_output_tokens": -1}, "--max-output-tokens -1"),
        ({"peer": "127.0.0.1:8090"}, "--peer 127.0.0.1:8090"),
        ({"peer": "http://x:99999"}, "--peer http://x:99999"),
        ({"peer": "http://127.0.0.1:1", "cells": ("ttft",)}, "is asked in the cell whole"),
        ({"json_path": Path("/nowhere/at/all.json")}, "--json"),
    ],
)
def test_a_wrong_option_is_named_before_anything_starts(wrong: dict[str, object], named: str) -> None:
    """The message has the option and what was given."""
    with pytest.raises(SettingsError, match=named):
        replace(OPTIONS, **wrong).check()  # type: ignore[arg-type]


def test_a_reduced_run_measures_the_same_cells() -> None:
    """With fewer of everything, and within what was asked."""
    reduced = replace(OPTIONS, conversations=2).reduced()
    reduced.check()
    assert reduced.cells == OPTIONS.cells
    assert reduced.conversations == 2
    assert reduced.rounds == 1


def test_what_is_measured_behind_a_proxy_has_systems_of_its_own() -> None:
    """But for a reduced run; the order is always the same, and Redis is killed last."""
    everything = replace(OPTIONS, cells=("down", "slow", "write", "ttft", "whole"))
    assert everything.groups() == [["ttft", "whole", "write"], ["slow", "down"]]
    assert everything.reduced().groups() == [["ttft", "whole", "write", "slow", "down"]]
    assert replace(OPTIONS, cells=("down",)).groups() == [["down"]]
    assert replace(OPTIONS, cells=("window",)).reduced().groups() == [], "two windows, not two caches"
