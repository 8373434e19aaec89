"""All Prometheus metrics of gateways, workers and commands, declared once. Pure modules return what happened; the code
that calls them updates the metrics.

No label contains the id of a request, session, tenant or user. Durations are in seconds, as is usual for Prometheus;
names and buckets follow vLLM's and OpenTelemetry's GenAI metrics. CPU, memory and open files of the process come from
prometheus_client (`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`).
"""

import math
from typing import Final, Literal, get_args

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

from shared.wire.lanes import PASSED_ON
from shared.wire.messages import HandoffReason

_LATENCY_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 12, 30, 60)
_STEP_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
_PAUSE_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

# --- gateway
connections = Gauge("replyline_gateway_connections", "WebSocket connections held")
closes = Counter("replyline_gateway_closes_total", "Connections closed by the gateway", ["code"])
inflight = Gauge("replyline_gateway_inflight", "Requests without their terminal event")
accepted = Counter(
    "replyline_gateway_requests_total", "Requests accepted: clients', and those of chat.requests", ["bucket"]
)
asked = Counter("replyline_gateway_asked_total", "Requests asked of the workers' lanes, before admission", ["bucket"])
asked_work = Counter(
    "replyline_gateway_asked_work_seconds_total",
    "Machine time that these would take, by the workers' reports",
    ["bucket"],
)
lane_requests = Counter(
    "replyline_gateway_lane_requests_total", "Requests sent to workers, by the version named", ["lane", "revision"]
)
lane_answers = Counter(
    "replyline_gateway_lane_answers_total",
    "Terminal events, by the request's lane and the version that wrote the answer",
    ["lane", "revision", "status"],
)
begun_again = Counter(
    "replyline_gateway_begun_again_total", "Answers that began again in other words: the first text fell silent"
)
observations = Counter(
    "replyline_gateway_observations_total", "Answers of a rollout, and ratings, as evidence in Kafka", ["outcome"]
)
rollout = Gauge("replyline_gateway_rollout", "1 while a rule sends conversations to a canary, else 0")
refused = Counter(
    "replyline_gateway_refused_total", "Messages answered with an error; no_memory: connections", ["code"]
)
answers = Counter("replyline_gateway_answers_total", "Terminal events", ["source", "status", "reason"])
ttft = Histogram(
    "replyline_gateway_ttft_seconds", "Receipt to first text sent, model answers", ["bucket"], buckets=_LATENCY_S
)
replies_dropped = Counter("replyline_gateway_replies_dropped_total", "Replies nobody waits for, or repeated", ["why"])
deltas_merged = Counter("replyline_gateway_deltas_merged_total", "Deltas joined to another for a slow client")

conversations = Counter("replyline_gateway_conversations_total", "Conversations that got their first answer here")
handoffs = Counter("replyline_gateway_handoffs_total", "Hand-offs to a person, wanted or due", ["reason", "outcome"])
for _reason in get_args(HandoffReason):  # each from 0: an alert sees the first
    for _outcome in ("created", "open", "failed", "limited"):
        handoffs.labels(_reason, _outcome)
webhooks = Counter("replyline_gateway_webhooks_total", "Hand-offs posted to the operator's address", ["outcome"])
for _outcome in ("taken", "failed", "given_up"):
    webhooks.labels(_outcome)
chatwoot = Counter("replyline_gateway_chatwoot_total", "Messages of Chatwoot that the bot was asked", ["outcome"])
for _outcome in ("answered", "handed_over", "taken_over", "given_up"):
    chatwoot.labels(_outcome)
feedback = Counter(
    "replyline_gateway_feedback_total",
    "What customers think of answers; kind: given, or taken back by another of the same answer",
    ["source", "outcome", "kind"],
)
feedback_reasons = Counter("replyline_gateway_feedback_reasons_total", "Why an answer did not help", ["reason"])

guards = Gauge(
    "replyline_gateway_guards",
    "0 normal; breaker: 1 half-open, 2 open (only the fallback answers); memory: 1 sheds, 2 refuses (at 92, 95 %)",
    ["what"],
)
for _what in ("breaker", "memory"):
    guards.labels(_what)
rung = Gauge(
    "replyline_gateway_rung", "The rung that requests begin on: 0 champion, 1 light model, 2 the CPU's, 3 the FAQ"
)
placed = Counter("replyline_gateway_placed_total", "Questions by why they go to their partition", ["why"])
for _why in ("hash", "slack", "kv", "moved", "pinned"):
    placed.labels(_why)
partition_skew = Gauge(
    "replyline_gateway_partition_skew",
    "The busiest worker's predicted wait over the median one, of lane champion",
)
fallbacks = Counter("replyline_gateway_fallbacks_total", "Answers given in a worker's stead", ["reason"])
first_word = Histogram(
    "replyline_gateway_first_word_seconds", "Receipt to a worker's first word, a refusal too", buckets=_LATENCY_S
)
workers_known = Gauge("replyline_gateway_workers", "Workers of lane champion that have reported lately")
promise = Gauge("replyline_gateway_promise_seconds", "The promise of a request that names none", ["deadline"])
deadlines = Counter(
    "replyline_gateway_deadlines_total",
    "Promises met by a worker's own answer, or missed; no cancels, adopted answers or clients' own deadlines",
    ["bucket", "deadline", "outcome"],
)
late_terminals = Counter("replyline_gateway_late_terminals_total", "Terminal events over 250 ms after their deadline")
shadowed = Counter(
    "replyline_gateway_shadowed_total", "Answers that the shadow lane was asked for again, or was not", ["outcome"]
)
for _outcome in ("sent", "dropped"):
    shadowed.labels(_outcome)

# --- worker
step_time = Histogram(
    "replyline_worker_step_seconds",
    "Parts of a step: schedule, transfer, prefill, decode (both with their sampling; a call that does both is "
    "divided as predicted), complete",
    ["kind"],
    buckets=_STEP_S,
)
batch_rows = Histogram(
    "replyline_worker_batch_rows", "Sequences decoded by one step", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
)
speculated_tokens = Counter(
    "replyline_worker_speculated_tokens_total",
    "Tokens that were proposed to be verified in one step (proposed), and those that were the sampled ones (accepted), "
    "by the text they were looked up in: faq, conversation, tenant",
    ["outcome", "source"],
)
for _source in ("faq", "conversation", "tenant"):
    speculated_tokens.labels("proposed", _source)
    speculated_tokens.labels("accepted", _source)
prompt_tokens = Histogram(
    "replyline_worker_prompt_tokens",
    "Length of whole prompts, in tokens",
    buckets=(32, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 4_096, 8_192, 32_768),
)
load = Gauge(
    "replyline_worker_load", "Slots that the engine has; those used; requests read and waiting for one", ["what"]
)
for _what in ("slots", "used", "waiting"):
    load.labels(_what)
tokens = Counter(
    "replyline_worker_tokens_total",
    "Tokens: prompt (computed), padding (computed to make a prefill call's rows equal), output; those of prompts that "
    "were not computed, by where they stood: slot, host, redis",
    ["kind"],
)
for _kind in ("prompt", "padding", "output", "slot", "host", "redis"):  # each from 0: a rate begins there
    tokens.labels(_kind)
infer = Counter("infer_total", "The worker's answers", ["status", "reason"])
for _end in (
    ("completed", "stop"), ("incomplete", "max_output_tokens"), ("incomplete", "deadline"),
    ("incomplete", "infeasible"), ("cancelled", "client"), ("failed", "internal"),
):  # fmt: skip
    infer.labels(*_end)
infer_duration = Histogram("infer_duration_seconds", "The worker's intake to the answer's end", buckets=_LATENCY_S)
queue_time = Histogram("replyline_worker_queue_seconds", "Intake to first engine step", buckets=_LATENCY_S)
outcomes = Counter(
    "replyline_worker_outcomes_total",
    "Requests by what came of the promise: kept, missed, failed, or withdrawn by the client in time",
    ["outcome"],
)
model_info = Gauge(
    "replyline_worker_model_info",
    "1; its labels say what this worker computes new requests with",
    ["model", "revision", "engine", "release"],
)
loaded_versions = Gauge(
    "replyline_worker_versions_loaded", "Model versions in memory: 1 for the one that serves, 0 beside it", ["revision"]
)
switches = Counter(
    "replyline_worker_switches_total",
    "Changes of the version that is served: done, or refused: store (not there, not whole, not signed), memory, "
    "rehearsal, load",
    ["outcome"],
)
for _outcome in ("done", "store", "memory", "rehearsal", "load"):
    switches.labels(_outcome)
partitions_paused = Gauge("replyline_worker_intake_paused", "1 while intake waits for the scheduler")
cancels_remembered = Gauge("replyline_worker_cancels_remembered", "Cancels of requests that may still come")
consumer_lag = Gauge("replyline_worker_consumer_lag", "Records of its partitions not yet committed", ["bucket"])
history_unavailable = Counter(
    "replyline_history_unavailable_total",
    "read: answers given without what was said before; lost: turns that Redis did not take for 30 s; "
    "share: turns of a tenant that had too much of a Redis that fills; journal: turns that a full journal of an edge "
    "does not take for its centre",
    ["what"],
)
for _what in ("read", "lost", "share", "journal"):  # each from 0: an alert sees the first
    history_unavailable.labels(_what)

odd_requests = Counter(
    "replyline_worker_odd_requests_total",
    "Requests from a clock over a second ahead, in another bucket than their length's, or first computed late: after "
    "their first-token deadline",
    ["what"],
)
for _what in ("clock", "bucket", "late"):  # each from 0: an alert sees the first
    odd_requests.labels(_what)
shadows = Counter(
    "replyline_worker_shadows_total",
    "A shadow's answers: equal to the live one, other than it, or none in time",
    ["outcome"],
)
for _outcome in ("equal", "other", "unanswered"):
    shadows.labels(_outcome)
shadow_same = Histogram(
    "replyline_worker_shadow_same_ratio",
    "The part of a shadow's answer before its first difference from the live one",
    buckets=(0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1),
)
shadow_unfounded = Counter(
    "replyline_worker_shadow_unfounded_total", "Facts that nothing bears out in live and in shadow answers", ["of"]
)
for _of in ("live", "shadow"):
    shadow_unfounded.labels(_of)
cost_ratio = Histogram(
    "replyline_worker_cost_ratio",
    "Actual by predicted time of an engine call",
    ["kind"],
    buckets=(0.5, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.5, 2, 4),
)

# --- what was computed of conversations
kv_time = Histogram(
    "replyline_kv_seconds",
    "load: asking Redis and loading from it; recompute: of the same tokens on the engine, as predicted; save: encoding "
    "and writing a turn, after its end",
    ["what"],
    buckets=_LATENCY_S,
)
kv_dropped = Counter("replyline_kv_dropped_total", "Blocks dropped, and turns that were not kept", ["reason"])
kv_disk_bytes = Gauge("replyline_kv_disk_bytes", "Disk that holds blocks which host memory has no room for")
kv_bytes = Counter("replyline_kv_bytes_total", "Blocks read from Redis (load) and written to it (save)", ["what"])
for _what in ("load", "save"):
    kv_bytes.labels(_what)
kv_host_bytes = Gauge("replyline_kv_host_bytes", "Host memory that holds blocks")

# --- the controller of rollouts
wanted_workers = Gauge(
    "replyline_wanted_workers", "Workers that a pool should have; none where this autoscaler stands by", ["pool"]
)
found_workers = Gauge("replyline_found_workers", "Workers of a pool that report; NaN where nobody can say", ["pool"])
asked_by_pool = Gauge(
    "replyline_asked_work", "Machine seconds that a second asks of a pool, lately; NaN while no gateway says", ["pool"]
)
expected_by_pool = Gauge(
    "replyline_expected_work", "The same when a worker that starts now serves: nine in ten times less", ["pool"]
)
worker_trust = Gauge(
    "replyline_worker_trust_ratio",
    "What a worker carries, by the answers that gateways measured, as a share of what its simulation says",
    ["pool"],
)
rollout_decisions = Counter(
    "replyline_rollout_decisions_total", "Decisions about the rule that sends conversations to a canary now"
)
rollout_leads = Gauge("replyline_rollout_leads", "1 where this controller decides, 0 where it stands by")
rollout_e_value = Gauge(
    "replyline_rollout_e_value_ratio",
    "Evidence that the canary is worse: of the worst test times its share of alpha, and by metric (1 for none)",
    ["kind"],
)
rollout_share = Gauge("replyline_rollout_share_ratio", "Conversations that go to the canary", ["bucket"])
rollout_state = Gauge("replyline_rollout_state", "1 for the newest rollout's state; none where it stands by", ["state"])
RolloutState = Literal["none", "wait", "hold", "freeze"]
for _state in get_args(RolloutState):
    rollout_state.labels(_state)
rollouts = Counter("replyline_rollouts_total", "Rollouts that have ended, noted by this controller", ["outcome"])
for _outcome in ("finished", "rolled_back", "stopped"):  # each from 0: an alert sees the first
    rollouts.labels(_outcome)
rollout_notices = Counter("replyline_rollout_notices_total", "Notices posted to the operator's address", ["outcome"])
for _outcome in ("taken", "failed", "given_up", "dropped"):
    rollout_notices.labels(_outcome)

# --- both
Faulty = Literal["answer", "connection", "handoff", "history", "kv", "record", "task"]
faults = Counter("replyline_faults_total", "Our own faults, by what each has harmed: one of these, no other", ["what"])
for _what in get_args(Faulty):  # each from 0: an alert sees the first
    faults.labels(_what)
dead_letters = Counter("replyline_dead_letters_total", "Records that could not be decoded or served", ["reason"])
DEAD_LETTER_REASONS: Final = (
    "invalid_record", "invalid_field", "header_mismatch", "reply_topic_not_allowed", "tenant_not_allowed",
    "input_too_long", "record_too_large", "unknown_topic", "internal", "poison",
)  # fmt: skip
for _reason in DEAD_LETTER_REASONS:  # each from 0: an alert sees the first
    dead_letters.labels(_reason)
dead_letters_waiting = Gauge("replyline_dead_letters_waiting", "Records set aside whose dead letter does not stand yet")
versions_epoch = Gauge(
    "replyline_versions_epoch", "Epoch of the registry's state that this process follows; NaN before it has read it"
)
versions_epoch.set(math.nan)
versions_unreadable = Gauge(
    "replyline_versions_unreadable_moves", "Moves of the registry since the newest that this process can read"
)
records_ignored = Counter(
    "replyline_records_ignored_total",
    "Records given up and kept nowhere: a report, cancel, erasure, hand-off, people, post, version, observation, "
    "demand or size that cannot be read, a reply that no topic takes",
    ["what"],
)
for _what in (
    "report", "cancel", "erasure", "handoff", "people", "post", "version", "observation", "demand", "scaling", "reply",
):  # fmt: skip
    records_ignored.labels(_what)
passed_on = Counter(
    "replyline_passed_on_total",
    "Requests passed on to the champion, of a lane that is closed or has no workers",
    ["lane"],
)
for _lane in PASSED_ON:
    passed_on.labels(_lane)
rebalances = Counter("replyline_rebalances_total", "Times that a consumer group gave this process its partitions anew")
kafka_time = Histogram(
    "replyline_kafka_seconds",
    "Produce to acknowledgement of a request, or of a round of replies; an offset commit",
    ["what"],
    buckets=_LATENCY_S,
)
kafka_refused = Counter(
    "replyline_kafka_refused_total", "Offset commits refused (a rebalance); replies sent again", ["what"]
)
for _what in ("commit", "reply"):  # each from 0: an alert sees the first
    kafka_refused.labels(_what)
ready = Gauge("replyline_ready", "1 while /ready has nothing against it", ["check"])
event_loop_lag = Histogram(
    "replyline_event_loop_lag_seconds", "How late a task that sleeps was woken", buckets=_PAUSE_S
)
clock_set = Gauge("replyline_clock_set_seconds", "By how much the wall clock was set since the process began")

faq_reloads = Counter("replyline_faq_reloads_total", "Reads of the FAQ's file after it had changed", ["outcome"])
for _outcome in ("reloaded", "failed"):
    faq_reloads.labels(_outcome)

# --- an edge
edge_questions = Counter(
    "replyline_edge_questions_total",
    "At an edge: answered here, by the centre, or here for want of the centre (unsure)",
    ["outcome"],
)
edge_link = Gauge("replyline_edge_link_seconds", "Round trip to the centre, smoothed")
edge_cut_off = Gauge("replyline_edge_cut_off", "1 while the centre does not answer an edge")
edge_journal = Gauge("replyline_edge_journal_entries", "Turns and erasures of an edge that its centre does not have")
edge_journal_bytes = Gauge("replyline_edge_journal_bytes", "Their bytes; a journal of 64 MiB takes no more turns")
edge_faq_version = Gauge("replyline_edge_faq_version", "Version of the FAQ that an edge answers from")
edge_in_step = Gauge("replyline_edge_in_step_timestamp_seconds", "When the centre last confirmed an edge's FAQ")

traces_dropped = Counter("replyline_traces_dropped_total", "Kept traces that are lost, with all their spans", ["why"])

# --- the machine, as the process sees it
machine_cpu = Counter("replyline_machine_cpu_seconds_total", "Of all cores, by what they did", ["mode"])
machine_memory = Gauge("replyline_machine_memory_bytes", "Of the machine, not of a container", ["state"])
machine_network = Counter("replyline_machine_network_bytes_total", "Over all network devices but loopback", ["kind"])
machine_network_speed = Gauge(
    "replyline_machine_network_speed_bytes", "What the network devices carry a second, each way; 0: they do not say"
)
gpu_utilization = Gauge("replyline_gpu_utilization_ratio", "Share of time with a kernel running", ["gpu"])
gpu_memory = Gauge("replyline_gpu_memory_bytes", "Of the device, whoever uses it", ["gpu", "state"])
gpu_temperature = Gauge("replyline_gpu_temperature_celsius", "Of the device", ["gpu"])


def exposition() -> tuple[str, bytes]:
    """Return content type and body for `/metrics`."""
    return CONTENT_TYPE_LATEST, generate_latest()
