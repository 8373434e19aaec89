"""The bugs. One that no test notices is a missing test."""

from pathlib import Path
from typing import Final

from tests.planted_bugs.bug import Bug
from tests.planted_bugs.claim_bugs import CLAIM_BUGS
from tests.planted_bugs.door_bugs import DOOR_BUGS
from tests.planted_bugs.fault_bugs import FAULT_BUGS
from tests.planted_bugs.scale_bugs import SCALE_BUGS


def find_misplaced(root: Path) -> list[str]:
    """What is wrong with the table for the code in `root`: a line each."""
    wrong = []
    for bug in BUGS:
        try:
            bug.planted_in((root / bug.file).read_text())
        except (ValueError, OSError) as error:
            wrong.append(str(error))
        wrong += [f"{bug.name}: {test} is missing" for test in bug.tests if not (root / test).is_file()]
    return wrong


BUGS: Final = (
    Bug(
        "a reply that was not acknowledged settles its request",
        "workers/request/reply_publisher.py",
        "                failed.append(message)\n                continue\n",
        "                failed.append(message)\n",
        ("tests/unit/workers/request/test_reply_publisher.py",),
    ),
    Bug(
        "commit before reply: a record is done when its answer begins",
        "workers/serving/worker.py",
        "        self._jobs[job.id] = job\n",
        "        self._jobs[job.id] = job\n"
        "        for partition, offset in job.origins:\n"
        "            self._offsets.done(partition, offset)\n",
        ("tests/unit/workers/serving/test_worker.py",),
    ),
    Bug(
        "offsets are committed past what is open",
        "shared/records/offsets.py",
        "        return next(iter(self.open), self.end)\n",
        "        return self.end\n",
        ("tests/unit/shared/records/test_offsets.py",),
    ),
    Bug(
        "a record read again loses its place",
        "shared/records/offsets.py",
        "            window.open.pop(offset, None)\n",
        "            window.open.clear()\n",
        ("tests/unit/shared/records/test_offsets.py",),
    ),
    Bug(
        "the router commits what the broker did not take",
        "gateway/router.py",
        "        except BrokerUnavailable:\n            return False\n",
        "        except BrokerUnavailable:\n            return True\n",
        ("tests/unit/gateway/test_router.py",),
    ),
    Bug(
        "no dedupe of terminal events in the gateway",
        "gateway/request/inflight.py",
        "        del self._entries[entry.response_id]\n        self._remember(entry)\n",
        "        self._remember(entry)\n",
        ("tests/unit/gateway/request/test_inflight.py", "tests/unit/gateway/request/test_inflight_any_order.py"),
    ),
    Bug(
        "an earlier attempt may still speak",
        "gateway/request/inflight.py",
        "reply.attempt < entry.attempt or ",
        "",
        ("tests/unit/gateway/request/test_inflight.py", "tests/unit/gateway/request/test_inflight_any_order.py"),
    ),
    Bug(
        "an overlap of two deltas is shown twice",
        "gateway/request/inflight.py",
        "            text = text[overlap:]\n",
        "            pass\n",
        ("tests/unit/gateway/request/test_inflight.py", "tests/unit/gateway/request/test_inflight_any_order.py"),
    ),
    Bug(
        "a gap is skipped over",
        "gateway/request/inflight.py",
        "        if overlap < 0:\n",
        "        if overlap < -10**9:\n",
        ("tests/unit/gateway/request/test_inflight.py", "tests/unit/gateway/request/test_inflight_any_order.py"),
    ),
    Bug(
        "two texts are spliced",
        "gateway/request/inflight.py",
        "            if shown[: len(text)] != text[: len(shown)]:\n",
        "            if False:\n",
        ("tests/unit/gateway/request/test_inflight.py", "tests/unit/gateway/request/test_inflight_any_order.py"),
    ),
    Bug(
        "the fallback answers after the first text",
        "gateway/request/inflight.py",
        "started=entry.started",
        "started=False",
        ("tests/unit/gateway/request/test_inflight.py", "tests/unit/gateway/request/test_inflight_any_order.py"),
    ),
    Bug(
        "an erased session's answers are remembered",
        "gateway/request/inflight.py",
        "            self.forget(entry)\n",
        "            pass\n",
        ("tests/unit/gateway/request/test_inflight.py",),
    ),
    Bug(
        "a question asked again after an erasure has the erased one's id",
        "gateway/serving/gateway.py",
        "asked.event_id, asked.input, generation",
        "asked.event_id, asked.input, 0",
        ("tests/unit/gateway/serving/test_gateway_erasure.py", "tests/unit/gateway/serving/test_erasure_any_order.py"),
    ),
    Bug(
        "a reply is matched by its id alone",
        "gateway/serving/gateway.py",
        "entry is None or reply.session_id != entry.session_id",
        "entry is None",
        ("tests/unit/gateway/serving/test_gateway_erasure.py",),
    ),
    Bug(
        "a gateway does not hear what another erases",
        "gateway/serving/erasure.py",
        "        self._learn(SessionKey(erase.tenant, erase.session_id), erase.generation)\n",
        "        pass\n",
        ("tests/unit/gateway/serving/test_gateway_erasure.py",),
    ),
    Bug(
        "an erased job's turn reaches the history",
        "workers/serving/worker.py",
        "lambda: None if job.erased else self._remember(job, done),\n",
        "lambda: self._remember(job, done),\n",
        ("tests/unit/workers/serving/test_worker_asked_again.py",),
    ),
    Bug(
        "an erased turn that is being written stands in the next prompt",
        "shared/conversation/history.py",
        "            if turn.generation < generation:\n                continue\n",
        "",
        ("tests/unit/shared/conversation/test_history.py",),
    ),
    Bug(
        "a cancel is of whoever asks for the same again",
        "workers/serving/worker.py",
        "        if job.asked_again(cancel):\n            return True\n",
        "",
        ("tests/unit/workers/serving/test_worker_asked_again.py",),
    ),
    Bug(
        "seq is off by one",
        "workers/request/reply_publisher.py",
        "self._next_seq[request_id] = delta.seq + 1",
        "self._next_seq[request_id] = delta.seq + 2",
        ("tests/unit/workers/request/test_reply_publisher.py",),
    ),
    Bug(
        "a delta's offset counts bytes",
        "workers/answer/stream.py",
        "        self._offset += len(delta)\n",
        "        self._offset += len(delta.encode())\n",
        ("tests/unit/workers/answer/test_stream.py",),
    ),
    Bug(
        "a slot is not cleared",
        "workers/schedule/slots.py",
        "        self._rows.pop()\n",
        "        pass\n",
        ("tests/unit/workers/schedule/test_slots.py",),
    ),
    Bug(
        "the KV of a row that moved stays behind",
        "workers/schedule/slots.py",
        "            if row.computed:\n                moves.append(Move(last, hole, row.computed))\n",
        "            pass\n",
        ("tests/unit/workers/schedule/test_slots.py",),
    ),
    Bug(
        "the KV's names leave out the salt",
        "workers/kv/blocks.py",
        "for part in (salt, layout_id.encode(), ",
        "for part in (layout_id.encode(), ",
        ("tests/unit/workers/kv/test_blocks.py",),
    ),
    Bug(
        "the KV's names leave out the tenant",
        "workers/kv/blocks.py",
        "blake2b(self._prefix + tenant.encode(), ",
        "blake2b(self._prefix, ",
        ("tests/unit/workers/kv/test_blocks.py",),
    ),
    Bug(
        "a private block is named without its session",
        "workers/kv/blocks.py",
        "blake2b(last + session_id.encode(), ",
        "blake2b(last, ",
        ("tests/unit/workers/kv/test_blocks.py",),
    ),
    Bug(
        "an erased conversation's KV stays in memory",
        "workers/kv/cache.py",
        "            self._host.erase(_owner(session))\n",
        "            pass\n",
        ("tests/unit/workers/kv/test_erasure.py",),
    ),
    Bug(
        "expiry is ignored in the scheduler",
        "workers/schedule/scheduler.py",
        '            late = [Finished(sequence, "incomplete", "deadline") for sequence in self._late(now_unix_ms)]\n',
        "            late: list[Finished] = []\n",
        ("tests/unit/workers/schedule/test_scheduler.py",),
    ),
    Bug(
        "a cancel is ignored",
        "workers/schedule/scheduler.py",
        "        self._cancelled[request_id] = None\n",
        "        pass\n",
        ("tests/unit/workers/schedule/test_scheduler.py",),
    ),
    Bug(
        "the soft deadline is forgotten",
        "shared/wire/deadline.py",
        "(self.deadline_unix_ms if started else self.first_token_unix_ms)",
        "self.deadline_unix_ms",
        ("tests/unit/shared/wire/test_deadline.py",),
    ),
    Bug(
        "the deadline in the header is ignored",
        "shared/records/requests.py",
        "    return msgspec.structs.replace(request, deadline_unix_ms=deadline)\n",
        "    return request\n",
        ("tests/unit/shared/wire/test_requests.py", "tests/unit/workers/intake/test_poison_records.py"),
    ),
    Bug(
        "a late record is opened",
        "workers/intake/triage.py",
        "        if deadline is None or deadline > now_unix_ms:\n",
        "        if deadline is None or deadline > 0:\n",
        ("tests/unit/workers/intake/test_triage.py",),
    ),
    Bug(
        "answers go to any topic",
        "shared/records/requests.py",
        "    if not reply_topic_allowed(reply_topic, defaults.reply_topics):\n",
        "    if False:\n",
        ("tests/unit/shared/wire/test_requests.py",),
    ),
    Bug(
        "any tenant may be named",
        "shared/records/requests.py",
        "    if not any(fnmatchcase(tenant, pattern) for pattern in defaults.tenants):\n",
        "    if False:\n",
        ("tests/unit/workers/intake/test_poison_records.py",),
    ),
    Bug(
        "a header may contradict the value",
        "shared/records/requests.py",
        "    if told is not None and told != value.encode():\n",
        "    if False:\n",
        ("tests/unit/workers/intake/test_poison_records.py",),
    ),
    Bug(
        "an input may be of any length",
        "gateway/admission/control.py",
        "    if num_tokens > limits.max_input_tokens:\n",
        "    if False:\n",
        ("tests/unit/gateway/admission/test_control.py",),
    ),
    Bug(
        "the rate limit counts nothing",
        "gateway/session/protocol.py",
        "        self._allowance -= 1\n",
        "        pass\n",
        ("tests/unit/gateway/session/test_session_rate.py",),
    ),
    Bug(
        "special tokens in a text are parsed",
        "shared/model/tokenizer.py",
        '            document["added_tokens"] = [token for token in added if not token["special"]]\n',
        "            pass\n",
        ("tests/unit/shared/model/test_tokenizer.py",),
    ),
    Bug(
        "a model file's sha256 is not compared",
        "shared/model/folder.py",
        "        if verify and sha256_of(file) != entry.sha256:\n",
        "        if False:\n",
        ("tests/unit/shared/model/test_prepared_folder.py",),
    ),
    Bug(
        "a worker loads a model without comparing its sha256",
        "workers/loading.py",
        "ModelFolder.open(directory, verify=True)",
        "ModelFolder.open(directory)",
        ("tests/unit/shared/model/test_prepared_folder.py",),
    ),
    Bug(
        "a GPU's worker loads a model without comparing its sha256",
        "workers/loading.py",
        "ModelFolder.open(settings.model.dir, verify=True)",
        "ModelFolder.open(settings.model.dir)",
        ("tests/unit/workers/engine/tensorrt/test_folder.py",),
    ),
    Bug(
        "a token may be nested as deep as it likes",
        "gateway/access/token_keys.py",
        "(msgspec.DecodeError, UnicodeDecodeError, RecursionError)",
        "(msgspec.DecodeError, UnicodeDecodeError)",
        ("tests/unit/gateway/access/test_identity.py", "tests/unit/gateway/access/test_token_keys.py"),
    ),
    Bug(
        "a closed transport ends who writes to Kafka",
        "shared/kafka/__init__.py",
        "\ntake_for_broken()\n",
        "\n",
        ("tests/unit/shared/kafka/test_closed_transports.py",),
    ),
    Bug(
        "a GGUF file's header is believed",
        "workers/graph/sources/gguf_header.py",
        "        if size > self.size - self.at:\n",
        "        if False:\n",
        ("tests/unit/workers/graph/sources/test_gguf_files.py",),
    ),
    Bug(
        "tensors may overlap",
        "workers/graph/sources/safetensors.py",
        "        if start != at or stop < start:\n",
        "        if stop < start:\n",
        ("tests/unit/workers/graph/sources/test_safetensors_files.py",),
    ),
    Bug(
        "an unread record is answered under any id",
        "workers/intake/triage.py",
        "if not _IDENTIFIER.fullmatch(request_id) or ",
        "if not request_id or ",
        ("tests/unit/workers/intake/test_poison_records.py",),
    ),
    Bug(
        "a dead letter shows what the customer wrote",
        "ops/operate/letters.py",
        "else _kind(field)\n\n\ndef _kind",
        "else field\n\n\ndef _kind",
        ("tests/unit/ops/operate/test_letters.py",),
    ),
    Bug(
        "a cursor keeps the answers that went to another socket",
        "gateway/session/connections.py",
        "                former.let_go(entry.response_id)\n",
        "",
        ("tests/unit/gateway/serving/test_gateway.py",),
    ),
    Bug(
        "a short question overtakes a long one of its session",
        "gateway/serving/gateway.py",
        "self._lines.turn((entry.tenant, entry.session_id))",
        "self._lines.turn(entry)",
        ("tests/unit/gateway/serving/test_gateway.py",),
    ),
    Bug(
        "the router forwards a session's records as they are counted",
        "gateway/router.py",
        "self._lines.turn(key)",
        "self._lines.turn(record.offset)",
        ("tests/unit/gateway/test_router.py",),
    ),
    Bug(
        "deadlines move where the wall clock is set",
        "shared/process/process_clock.py",
        "return self.start_unix_ms + monotonic_ms\n",
        "return self.start_unix_ms + monotonic_ms + self.correction_ms\n",
        ("tests/unit/shared/process/test_clock.py", "tests/unit/gateway/request/test_clocks_any_order.py"),
    ),
    Bug(
        "a clock that is put right is not followed",
        "shared/process/process_clock.py",
        "        elif monotonic_ms - self._since_ms >= HELD_MS:\n",
        "        elif monotonic_ms - self._since_ms >= 60 * HELD_MS:\n",
        ("tests/unit/shared/process/test_clock.py", "tests/unit/gateway/request/test_clocks_any_order.py"),
    ),
    Bug(
        "an adopted answer's deadlines go by the first gateway's clock",
        "gateway/request/entry.py",
        "    start = now - told.age_ms\n",
        "    start = told.received_unix_ms\n",
        ("tests/unit/gateway/request/test_inflight_resume.py",),
    ),
    *FAULT_BUGS,
    *DOOR_BUGS,
    *CLAIM_BUGS,
    *SCALE_BUGS,
)
