"""The names of span attributes from OpenTelemetry's semantic conventions, of one version of them
(https://opentelemetry.io/docs/specs/semconv/).

The conventions for messaging and generative AI are still changing, so all names are in this module, and a move to a
newer version changes only it. Attributes that have no conventional name begin with `replyline.`.
"""

from typing import Final

VERSION: Final = "1.37.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{VERSION}"

# --- resource
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"

# --- any span
ERROR_TYPE: Final = "error.type"

# --- messaging
MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_DESTINATION_NAME: Final = "messaging.destination.name"
MESSAGING_DESTINATION_PARTITION_ID: Final = "messaging.destination.partition.id"
MESSAGING_KAFKA_OFFSET: Final = "messaging.kafka.offset"

# --- GenAI
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"

# --- Replyline's own
BUCKET: Final = "replyline.bucket"
SOURCE: Final = "replyline.source"
STATUS: Final = "replyline.status"
REASON: Final = "replyline.reason"
FALLBACK: Final = "replyline.fallback"
KEPT: Final = "replyline.kept"
FIRST_DEADLINE_MS: Final = "replyline.first_token_deadline_ms"
DEADLINE_MS: Final = "replyline.deadline_ms"
CACHED_TOKENS: Final = "replyline.cached_tokens"
CLOCK_SHIFT_MS: Final = "replyline.clock_shift_ms"
OVERRUN_MS: Final = "replyline.overrun_ms"
CHUNK: Final = "replyline.chunk"
TURNS_MISSING: Final = "replyline.turns_missing"
