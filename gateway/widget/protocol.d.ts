/** The wire's messages, made by `replyline schema --typescript`: do not edit. See docs/protocol.md. */
export type ClientInfo = {
  name?: string;
  version?: string;
};
export type Consent = {
  training?: boolean;
};
export type ErrorDetail = {
  type: "authentication_error" | "invalid_request_error" | "overloaded_error" | "rate_limit_error" | "server_error";
  code: string;
  message: string;
  retryable: boolean;
  param?: string;
  retry_after_ms?: number;
};
export type ErrorEvent = {
  type: "error";
  error: ErrorDetail;
  event_id?: string;
};
export type Feedback = {
  type: "feedback";
  response_id: string;
  event_id?: string;
  rating?: "down" | "up";
  resolved?: boolean;
  reason?: "incomplete" | "off_topic" | "other" | "slow" | "unclear" | "wrong";
};
export type FeedbackRecorded = {
  type: "feedback.recorded";
  response_id: string;
  event_id?: string;
  rating?: "down" | "up";
  resolved?: boolean;
  reason?: "incomplete" | "off_topic" | "other" | "slow" | "unclear" | "wrong";
};
export type Grounding = {
  id: string;
  question: string;
  answer: string;
  url?: string;
};
export type HandoffCreated = {
  type: "handoff.created";
  handoff_id: string;
  reason: "fallbacks" | "requested" | "text";
  created_at: number;
  event_id?: string;
};
export type HandoffRequest = {
  type: "handoff.request";
  event_id?: string;
  language?: "en" | "zh";
};
export type Limits = {
  max_message_bytes: number;
  max_input_tokens: number;
  max_output_tokens: number;
  max_inflight: number;
  messages_per_minute: number;
  first_token_ms: number;
  deadline_ms: number;
};
export type PersonMessage = {
  type: "person.message";
  message_id: string;
  n: number;
  name: string;
  text: string;
  at: number;
};
export type PersonState = {
  type: "person.state";
  state: "bot" | "resolved" | "taken" | "waiting";
  name?: string;
};
export type Ping = {
  type: "ping";
};
export type Pong = {
  type: "pong";
};
export type Replaced = {
  offset: number;
  length: number;
  id?: string;
};
export type Response = {
  id: string;
  status: "cancelled" | "completed" | "failed" | "incomplete";
  reason: "client" | "deadline" | "infeasible" | "internal" | "max_output_tokens" | "person" | "stop";
  source: "busy" | "clarify" | "courtesy" | "faq" | "handoff" | "mixed" | "model" | "quote" | "unsure";
  output_text: string;
  usage: Usage;
  timings: Timings;
  model?: string;
  revision?: string;
  lane?: "canary" | "champion" | "control" | "cpu" | "light" | "shadow";
  error?: ErrorDetail;
  grounding?: Array<Grounding>;
  replaced?: Array<Replaced>;
  faq_version?: number;
};
export type ResponseCancel = {
  type: "response.cancel";
  response_id?: string;
  target_event_id?: string;
};
export type ResponseCreate = {
  type: "response.create";
  event_id: string;
  input: string;
  max_output_tokens?: number;
  temperature?: number;
  top_p?: number;
  seed?: number;
  stop?: Array<string>;
  deadline_ms?: number;
  first_token_ms?: number;
  metadata?: Record<string, string>;
  traceparent?: string;
  turns?: Array<Said>;
  instructions?: string;
};
export type ResponseCreated = {
  type: "response.created";
  response_id: string;
  event_id: string;
  bucket: "long" | "medium" | "short";
  eta_ms?: number;
  cursor?: string;
};
export type ResponseDelta = {
  type: "response.output_text.delta";
  response_id: string;
  seq: number;
  offset: number;
  delta: string;
  cursor: string;
};
export type ResponseDone = {
  type: "response.done";
  response: Response;
  cursor: string;
};
export type Resume = {
  cursor: string;
  age_ms?: number;
};
export type Said = {
  user: string;
  assistant: string;
};
export type SessionClosing = {
  type: "session.closing";
  reason: string;
  reconnect_after_ms: number;
};
export type SessionCreated = {
  type: "session.created";
  session_id: string;
  connection_id: string;
  recovered: boolean;
  replayed: number;
  limits: Limits;
  heartbeat_s: number;
  expires_at?: number;
  handoff?: boolean;
};
export type SessionDelete = {
  type: "session.delete";
};
export type SessionDeleted = {
  type: "session.deleted";
  session_id: string;
};
export type SessionRefresh = {
  type: "session.refresh";
  token: string;
};
export type SessionRefreshed = {
  type: "session.refreshed";
  expires_at: number;
};
export type SessionStart = {
  type: "session.start";
  token?: string;
  session_id?: string;
  resume?: Resume;
  client?: ClientInfo;
  consent?: Consent;
  talk?: number;
};
export type Timings = {
  admission_ms?: number;
  queue_ms?: number;
  prefill_ms?: number;
  ttft_ms?: number;
  total_ms?: number;
};
export type Usage = {
  input_tokens?: number;
  cached_tokens?: number;
  output_tokens?: number;
};
export type ClientMessage = SessionStart | SessionRefresh | SessionDelete | ResponseCreate | ResponseCancel | HandoffRequest | Feedback | Pong;
export type ServerMessage = SessionCreated | SessionRefreshed | SessionDeleted | SessionClosing | ResponseCreated | ResponseDelta | ResponseDone | HandoffCreated | PersonState | PersonMessage | FeedbackRecorded | ErrorEvent | Ping;
