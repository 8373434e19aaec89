/**
 * Replyline's protocol in a browser or in Node 22: one WebSocket, subprotocol `chat.v1.json`, no dependency.
 *
 * A question outlives its socket. It is kept until its `response.done` arrives; after a reconnect the session is
 * resumed from the last cursor, and its answers continue. A question that the server had not confirmed yet, or any
 * question if the session cannot be resumed, is sent again with the same `event_id`: the server reattaches to the
 * answer that it is already computing, and sends it from its beginning.
 *
 *     const client = new ReplylineClient({ url: "wss://shop.example/ws" });
 *     client.on("delta", ({ text }) => show(text));
 *     client.connect();
 *     client.create("Do you ship abroad?");
 *
 * Each event is a CustomEvent with the `detail` described by `Events`.
 *
 * @import { ClientMessage, ErrorDetail, Feedback, HandoffCreated, HandoffRequest, Response } from "./protocol.js"
 * @import { ResponseCreate, ResponseCreated, ResponseDelta, ResponseDone } from "./protocol.js"
 * @import { PersonMessage, PersonState, ServerMessage, SessionCreated } from "./protocol.js"
 * @typedef {"idle" | "connecting" | "online" | "reconnecting" | "closed"} State
 * @typedef {NonNullable<Feedback["rating"]>} Rating
 * @typedef {NonNullable<HandoffRequest["language"]>} Language
 * @typedef {Omit<HandoffCreated, "type" | "event_id">} Handoff
 * @typedef {Omit<PersonMessage, "type">} Said
 * @typedef {Omit<PersonState, "type">} Person
 * @typedef {Partial<Omit<ResponseCreate, "type" | "input">>} CreateOptions an earlier question's `event_id` reattaches to
 *     its answer
 * @typedef {object} Events
 * @property {{ state: State, code?: number }} state the state of the connection
 * @property {{ event_id: string }} created the server has accepted the question
 * @property {{ event_id: string, text: string }} delta the whole text so far
 * @property {{ event_id: string, response: Response }} done the answer, once
 * @property {{ offered: boolean, wanted: boolean, open: Handoff | null, person: Person | null, error?: ErrorDetail }}
 *     handoff whether a person can be requested, and was requested; the open hand-off; who answers
 * @property {Said} said a person's message, once
 * @property {{ response_id: string, rating: Rating | null, error?: ErrorDetail }} rated the current rating of
 *     an answer; null if it could not be saved
 * @property {{ event_id?: string, error: ErrorDetail }} error with an event_id: there will be no answer to that question
 * @typedef {{ request: ResponseCreate, response_id: string | null, text: string, next_seq: number, characters: number,
 *     sent: boolean, refused: boolean, cancelled: boolean, had_gap: boolean }} Question
 */

import { newEventId, safeStorage, toJson, wellFormed } from "./replyline-browser.js";
import { Care } from "./replyline-care.js";

const SUBPROTOCOL = "chat.v1.json";
const OPEN = 1; // pages wrap WebSocket in functions without its constants
const CLIENT = { name: "replyline-widget", version: "0.1.0" };
const BACKOFF_BASE_MS = 500;
// A restarted gateway is back within seconds, and its clients reconnect as fast; in a long outage they try less often.
const BACKOFF_CAP_MS = 5_000;
const LONG_OUTAGE_ATTEMPTS = 20; // most of a minute
const BACKOFF_LONG_OUTAGE_CAP_MS = 30_000;
const HEARTBEAT_UNTIL_TOLD_MS = 5_000;
const SOONEST_REFRESH_MS = 10_000;
const AT_ONCE_MS = 200; // upper bound: a gateway that shuts down disconnects all its clients at the same time
const SHUTTING_DOWN = "shutting_down";
const TOO_MANY_CONNECTIONS = "too_many_connections";
const SILENCE_MS = 2_500; // a gateway confirms a question within milliseconds
const WAKE_SILENCE_MS = 1_000; // while an answer is open
const PAGE_HIDDEN_MS = 1_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1; // a longer one fires immediately
const MESSAGE_TOO_BIG = 1009; // sent again it would be refused again

/** After these the connection may be dead. "pagehide": browsers do not keep a page with an open socket for "back". */
const PAGE_EVENTS = /** @type {const} */ ([
  ["window", "online"],
  ["window", "pageshow"],
  ["window", "pagehide"],
  ["document", "visibilitychange"],
  ["document", "resume"],
]);

/** @param {number} code a WebSocket close code */
const isTerminal = (code) => (code >= 4500 && code < 4600) || code === MESSAGE_TOO_BIG;

export class ReplylineClient extends EventTarget {
  #urls;
  #at = 0; // index of the one in use
  #token;
  #consent;
  #storage = safeStorage("sessionStorage");
  #storageKey;
  #consentKey; // the conversation that has consented to training

  /** @type {State} */ #state = "idle";
  /** @type {WebSocket | null} */ #socket = null;
  /** @type {string | null} */ #sessionId;
  /** @type {string | null} */ #cursor = null;
  #cursorAt = 0; // when it arrived
  /** @type {Map<string, Question>} unfinished questions by event_id, oldest first */ #questions = new Map();

  #attempt = 0;
  /** @type {number | null} the delay that `session.closing` asked for */ #reconnectAfterMs = null;
  #waitsAsTold = false;
  #fullForMs = 0; // how long a full gateway asked to wait
  #heartbeatMs = HEARTBEAT_UNTIL_TOLD_MS;
  /** @type {number | undefined} */ #retryTimer;
  /** @type {number | undefined} */ #watchdog;
  /** @type {number | undefined} runs while something sent has no frame after it */ #silenceTimer;
  #silenceMs = SILENCE_MS;
  #heardAt = 0; // Unix milliseconds: a monotonic clock stops while the machine sleeps
  /** @type {number | undefined} */ #refreshTimer;
  #erasing = false;
  #talk = 0; // the last person's message
  /** @type {Set<string>} ids of the persons' messages */ #said = new Set();
  #care = new Care(
    (message) => this.#takesQuestions && this.#send(message),
    (type, detail) => this.#emit(type, detail),
    newEventId,
  );
  #onPageEvent = (/** @type {Event} */ event) => {
    const isFirstShow = event.type === "pageshow" && !(/** @type {PageTransitionEvent} */ (event).persisted);
    if (!isFirstShow) this.#checkLine(event.type);
  };

  /** @typedef {() => string | undefined | Promise<string | undefined>} TokenSource */
  /**
   * @param {{ url: string | string[], token?: TokenSource, consent?: { training: boolean } }} options `url`: if there
   *     are several, the client tries the next one when a connection is lost. `token` returns a fresh token; it is
   *     called for every connection, and before the token expires. If it fails, the next reconnect calls it again.
   *     `consent.training`: the customer has agreed that the conversation is recorded and used to train models; it is
   *     read, and sent, with every connection.
   */
  constructor({ url, token, consent }) {
    super();
    this.#urls = [url].flat();
    this.#token = token;
    this.#consent = consent;
    this.#storageKey = `replyline:session:${this.#urls[0]}`;
    this.#consentKey = `${this.#storageKey}:consented`;
    this.#sessionId = this.#storage.get(this.#storageKey);
  }

  /**
   * Call `handle` with the `detail` of each event of a type; `addEventListener` works too.
   * @template {keyof Events} Type
   * @param {Type} type @param {(detail: Events[Type]) => void} handle
   */
  on(type, handle) {
    this.addEventListener(type, (event) => handle(/** @type {CustomEvent<Events[Type]>} */ (event).detail));
  }

  get state() {
    return this.#state;
  }

  connect() {
    if (this.#state !== "idle" && this.#state !== "closed") return;
    this.#setState("connecting");
    this.#open();
  }

  /** Close the connection. This is not a cancel: unfinished answers continue, and `connect` resumes them. */
  close() {
    this.#watchPage(false);
    this.#drop();
    this.#setState("idle");
  }

  /**
   * Ask a question. Works offline too: the question is sent as soon as there is a session.
   * @param {string} input
   * @param {CreateOptions} [options]
   * @returns {string} the event_id that all events of this answer carry
   */
  create(input, { event_id = newEventId(), ...options } = {}) {
    /** @type {Question} */
    const question = {
      request: { type: "response.create", event_id, input, ...options },
      response_id: null,
      text: "",
      next_seq: 0,
      characters: 0,
      sent: false,
      refused: false,
      cancelled: false,
      had_gap: false,
    };
    this.#questions.set(event_id, question);
    this.#submit(question);
    this.#hurry();
    return event_id;
  }

  /** Request a person. Works offline too; the event `handoff` reports the result. @param {Language} language */
  requestHandoff(language) {
    this.#care.request(language);
    this.#hurry();
  }

  /** Rate an answer; its last rating counts. @param {string} response_id @param {Rating} rating */
  rate(response_id, rating) {
    this.#care.rate(response_id, rating);
  }

  /** Name the persons' messages that the page shows already, before `connect`. @param {Said[]} messages */
  restoreSaid(messages) {
    for (const { message_id, n } of messages) this.#isNew(message_id, n);
  }

  /** Ask the server to stop. `done` follows with status "cancelled" (or "completed", if the answer ended first). */
  cancel(/** @type {string} */ event_id) {
    const question = this.#questions.get(event_id);
    if (!question) return;
    question.cancelled = true;
    if (question.sent) {
      this.#sendCancel(question);
    } else {
      this.#questions.delete(event_id);
      this.#emit("done", { event_id, response: cancelledUnsent(event_id) });
    }
  }

  /** Erase the conversation on the server, then start an empty one. Unfinished questions are dropped. */
  deleteSession() {
    this.#questions.clear();
    this.#care.forget();
    this.#forgetSaid();
    if (!this.#sessionId) return;
    this.#erasing = true;
    if (this.#state === "online") this.#send({ type: "session.delete" });
  }

  // --- the socket --------------------------------------------------------------------------------------------

  #open() {
    clearTimeout(this.#retryTimer);
    this.#watchPage(true);
    this.#reconnectAfterMs = null;
    this.#waitsAsTold = false;
    /** @type {WebSocket} */ let socket;
    try {
      socket = new WebSocket(this.#urls[this.#at % this.#urls.length], SUBPROTOCOL);
    } catch (error) {
      console.warn(`replyline: ${error}`);
      return this.#lost();
    }
    this.#socket = socket;
    this.#heartbeatMs = HEARTBEAT_UNTIL_TOLD_MS;
    this.#restartWatchdog();
    socket.onopen = async () => {
      let token;
      try {
        token = await this.#token?.();
      } catch {
        if (socket === this.#socket) this.#lost();
        return;
      }
      if (socket === this.#socket) this.#startSession(token);
    };
    socket.onmessage = (event) => {
      this.#restartWatchdog();
      this.#heardAt = Date.now();
      this.#silenceTimer = void clearTimeout(this.#silenceTimer);
      this.#receive(JSON.parse(event.data));
    };
    socket.onclose = (event) => this.#lost(event.code);
  }

  /** Release the socket without waiting for its closing handshake, which a dead network never finishes. */
  #drop() {
    clearTimeout(this.#retryTimer);
    clearTimeout(this.#watchdog);
    clearTimeout(this.#refreshTimer);
    this.#silenceTimer = void clearTimeout(this.#silenceTimer);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** @param {number} [code] the close code; undefined if this client closed the socket */
  #lost(code = 0) {
    this.#drop();
    if (isTerminal(code)) {
      this.#watchPage(false);
      this.#setState("closed", { code });
      return;
    }
    const cap = this.#attempt < LONG_OUTAGE_ATTEMPTS ? BACKOFF_CAP_MS : BACKOFF_LONG_OUTAGE_CAP_MS;
    const ceiling = Math.min(cap, BACKOFF_BASE_MS * 2 ** this.#attempt);
    this.#waitsAsTold = this.#reconnectAfterMs !== null;
    const delay = this.#reconnectAfterMs ?? this.#fullForMs + Math.random() * ceiling;
    this.#reconnectAfterMs = null;
    this.#fullForMs = 0;
    this.#attempt += 1;
    this.#at += 1;
    this.#retryTimer = setTimeout(() => this.#open(), delay);
    this.#setState("reconnecting");
    this.#hurry();
  }

  /** Replace a connection that may be dead. Messages that it did not confirm are sent again on the new one. */
  #replaceLine(delayMs = 0) {
    this.#drop();
    this.#waitsAsTold = false;
    this.#retryTimer = setTimeout(() => this.#open(), delayMs);
    this.#setState("reconnecting");
  }

  /** Double the time for each silent connection in a row, so that a slow gateway does not get ever more requests. */
  #onSilence() {
    this.#silenceMs = Math.min(2 * this.#silenceMs, 2 * this.#heartbeatMs);
    this.#at += 1;
    this.#replaceLine();
  }

  /** @param {boolean} on */
  #watchPage(on) {
    for (const [target, type] of PAGE_EVENTS) {
      const page = target === "window" ? globalThis : globalThis.document;
      page?.[on ? "addEventListener" : "removeEventListener"]?.(type, this.#onPageEvent);
    }
  }

  /** Replace a connection that the page's sleep or a change of network may have broken. @param {string} type of the event */
  #checkLine(type) {
    if (type === "pagehide") return this.#socket ? this.#replaceLine(PAGE_HIDDEN_MS) : undefined;
    if (globalThis.document?.visibilityState === "hidden" && type !== "online") return;
    if (this.#state === "reconnecting" && !this.#socket && (type === "online" || !this.#waitsAsTold)) {
      this.#open();
    } else if (this.#state === "online") {
      const patienceMs = this.#questions.size > 0 ? WAKE_SILENCE_MS : this.#heartbeatMs;
      const isSuspect = type !== "visibilitychange" || Date.now() - this.#heardAt > patienceMs;
      if (isSuspect) this.#replaceLine();
    }
  }

  /** When a gateway shuts down: reconnect immediately if a question is open, otherwise after the requested delay. */
  #hurry() {
    if (this.#questions.size === 0 && !this.#care.wanted) return;
    if (this.#state === "online" && this.#reconnectAfterMs !== null && this.#hasUnsent) {
      this.#lost(); // a gateway that shuts down accepts no more messages
    } else if (this.#state === "reconnecting" && this.#waitsAsTold) {
      this.#waitsAsTold = false;
      clearTimeout(this.#retryTimer);
      this.#retryTimer = setTimeout(() => this.#open(), Math.random() * AT_ONCE_MS);
    }
  }

  get #hasUnsent() {
    return this.#care.wanted || [...this.#questions.values()].some(({ sent }) => !sent);
  }

  /** The server sends at least one message per heartbeat; after two silent heartbeats the connection is dead. */
  #restartWatchdog() {
    clearTimeout(this.#watchdog);
    this.#watchdog = setTimeout(() => this.#lost(), 2 * this.#heartbeatMs);
  }

  /**
   * Send a fresh token when a fifth of the session's time is left: a session ends with its token. A wrong clock on this
   * machine, or a late token, costs a reconnect (4005) but no answer.
   * @param {number | undefined} expiresAt Unix milliseconds; undefined if the gateway checks no tokens
   */
  #refreshBefore(expiresAt) {
    clearTimeout(this.#refreshTimer);
    if (!this.#token || expiresAt === undefined) return;
    const delay = Math.max(SOONEST_REFRESH_MS, 0.8 * (expiresAt - Date.now()));
    this.#refreshTimer = setTimeout(() => this.#refresh(), Math.min(delay, LONGEST_TIMER_MS));
  }

  async #refresh() {
    const socket = this.#socket;
    try {
      const token = await this.#token?.();
      if (token && socket === this.#socket) this.#send({ type: "session.refresh", token });
    } catch {
      // The page has no token now: the session continues until this one expires, and the reconnect tries again.
    }
  }

  // --- client → server ---------------------------------------------------------------------------------------

  /** Send a message, and replace the connection unless a frame arrives soon. @param {ClientMessage} message */
  #send(message) {
    if (this.#socket?.readyState !== OPEN) return;
    this.#socket.send(toJson(wellFormed(message)));
    if (message.type === "session.start" || message.type === "pong") return; // the watchdog suffices
    this.#silenceTimer ??= setTimeout(() => this.#onSilence(), this.#silenceMs);
  }

  /** @param {string} [token] undefined fields are not sent */
  #startSession(token) {
    const training = this.#consent?.training ?? false;
    const consented = this.#sessionId !== null && this.#storage.get(this.#consentKey) === this.#sessionId;
    this.#send({
      type: "session.start",
      token,
      session_id: this.#sessionId ?? undefined,
      resume: this.#sessionId && this.#cursor
        ? { cursor: this.#cursor, age_ms: Math.round(performance.now() - this.#cursorAt) }
        : undefined,
      client: CLIENT,
      consent: training || consented ? { training } : undefined, // false withdraws it
      talk: this.#talk,
    });
  }

  /** @param {Question} question */
  #submit(question) {
    question.sent = this.#takesQuestions;
    if (!question.sent) return;
    this.#send(question.request);
    if (question.cancelled) this.#sendCancel(question);
  }

  /** @param {Question} question */
  #sendCancel({ response_id, request }) {
    if (this.#state !== "online") return;
    this.#send({
      type: "response.cancel",
      ...(response_id ? { response_id } : { target_event_id: request.event_id }),
    });
  }

  /** Return whether there is a session on a gateway that is not shutting down. */
  get #takesQuestions() {
    return this.#state === "online" && !this.#erasing && this.#reconnectAfterMs === null;
  }

  // --- server → client ---------------------------------------------------------------------------------------

  /** Unknown types are ignored: the protocol grows by adding them. */
  #receive(/** @type {ServerMessage} */ message) {
    switch (message.type) {
      case "session.created":
        return this.#onSession(message);
      case "session.refreshed":
        return this.#refreshBefore(message.expires_at);
      case "session.deleted":
        return this.#forgetSession();
      case "session.closing":
        this.#reconnectAfterMs = message.reconnect_after_ms;
        return;
      case "response.created":
        return this.#onCreated(message);
      case "response.output_text.delta":
        return this.#onDelta(message);
      case "response.done":
        return this.#onDone(message);
      case "handoff.created":
        return this.#care.onHandoff(message);
      case "person.state":
        return this.#care.onPerson(message);
      case "person.message":
        return this.#onSaid(message);
      case "feedback.recorded":
        return this.#care.onRated(message);
      case "error":
        return this.#onError(message);
      case "ping":
        return this.#send({ type: "pong" });
    }
  }

  /** @param {SessionCreated} message */
  #onSession({ session_id, recovered, heartbeat_s, expires_at, handoff = false }) {
    this.#attempt = 0;
    this.#refreshBefore(expires_at);
    this.#heartbeatMs = heartbeat_s * 1000;
    this.#restartWatchdog();
    const isAnother = this.#sessionId !== session_id;
    if (isAnother) this.#cursor = null;
    if (isAnother && this.#sessionId !== null) this.#forgetSaid();
    this.#sessionId = session_id;
    this.#storage.set(this.#storageKey, session_id);
    if (this.#consent?.training) this.#storage.set(this.#consentKey, session_id);
    else this.#storage.remove(this.#consentKey);
    this.#setState("online");
    if (this.#erasing) this.#send({ type: "session.delete" });
    for (const question of this.#questions.values()) {
      if (!recovered || !question.response_id) this.#submit(question);
      else if (question.cancelled) this.#sendCancel(question);
    }
    this.#care.begin(handoff, isAnother);
    this.#hurry(); // the gateway may have announced its shutdown before there was a session
  }

  /** A connection can start only one session, so an empty session needs a new connection. */
  #forgetSession() {
    this.#erasing = false;
    this.#sessionId = null;
    this.#cursor = null;
    this.#storage.remove(this.#storageKey);
    this.#drop();
    this.#setState("connecting");
    this.#open();
  }

  /** @param {PersonMessage} message */
  #onSaid({ message_id, n, name, text, at }) {
    if (this.#isNew(message_id, n)) this.#emit("said", { message_id, n, name, text, at });
  }

  /** @param {string} message_id @param {number} n */
  #isNew(message_id, n) {
    this.#talk = n;
    const isNew = !this.#said.has(message_id);
    this.#said.add(message_id);
    return isNew;
  }

  #forgetSaid() {
    this.#talk = 0;
    this.#said.clear();
  }

  /** @param {ResponseCreated} message */
  #onCreated({ response_id, event_id, cursor }) {
    if (cursor) this.#keep(cursor);
    this.#silenceMs = SILENCE_MS;
    const question = this.#questions.get(event_id);
    if (!question) return;
    const isAnother = question.response_id !== response_id;
    // The answer is sent from its beginning: it is new, is repeated, or replaces an answer that was lost.
    Object.assign(question, { response_id, text: "", characters: 0, next_seq: 0 });
    if (isAnother) this.#emit("created", { event_id });
  }

  /** @param {ResponseDelta} message */
  #onDelta({ response_id, seq, offset, delta, cursor }) {
    const question = this.#byResponse(response_id);
    if (!question || seq < question.next_seq) return;
    if (seq > question.next_seq || offset > question.characters) return this.#onGap(question);
    question.next_seq += 1;
    this.#keep(cursor);
    const fresh = [...delta].slice(question.characters - offset); // the wire counts code points, not UTF-16 units
    if (fresh.length === 0) return;
    question.text += fresh.join("");
    question.characters += fresh.length;
    this.#emit("delta", { event_id: question.request.event_id, text: question.text });
  }

  /** @param {string} cursor */
  #keep(cursor) {
    this.#cursor = cursor;
    this.#cursorAt = performance.now();
  }

  /** Text is missing: resume once from the last good cursor. If it is still missing, `done` has the whole text. */
  #onGap(/** @type {Question} */ question) {
    if (question.had_gap) return;
    question.had_gap = true;
    this.#lost();
  }

  /** @param {ResponseDone} message */
  #onDone({ response, cursor }) {
    this.#keep(cursor);
    const question = this.#byResponse(response.id);
    if (!question) return;
    this.#questions.delete(question.request.event_id);
    this.#emit("done", { event_id: question.request.event_id, response });
  }

  /** @param {{ event_id?: string, error: ErrorDetail }} message */
  #onError({ event_id, error }) {
    if (event_id && this.#care.onError(event_id, error)) return;
    const question = this.#questions.get(event_id ?? "");
    if (question && error.code === SHUTTING_DOWN) {
      question.sent = false; // another gateway will answer it
      this.#reconnectAfterMs ??= 0;
      return this.#hurry();
    }
    if (error.code === TOO_MANY_CONNECTIONS) {
      this.#fullForMs = error.retry_after_ms ?? 0;
      return;
    }
    if (event_id) {
      if (!this.#questions.delete(event_id)) return;
    } else if (this.#erasing) {
      this.#forgetSession(); // not erased yet, but it expires there, and this client no longer refers to it
    } else {
      event_id = this.#unreadable();
    }
    this.#emit("error", { event_id, error });
  }

  /**
   * Return the question that an error without an event_id ends, if any. The gateway could not read some message. The
   * oldest unconfirmed question is sent again, which does no harm; if that fails too, the error is about it.
   */
  #unreadable() {
    const question = [...this.#questions.values()].find(({ sent, response_id }) => sent && !response_id);
    if (!question) return undefined;
    if (question.refused) this.#questions.delete(question.request.event_id);
    else this.#submit(question);
    const isRefused = question.refused;
    question.refused = true;
    return isRefused ? question.request.event_id : undefined;
  }

  /** @param {string} response_id */
  #byResponse(response_id) {
    for (const question of this.#questions.values()) {
      if (question.response_id === response_id) return question;
    }
    return undefined;
  }

  /** @param {State} state @param {{ code?: number }} [detail] */
  #setState(state, detail = {}) {
    this.#state = state;
    this.#emit("state", { state, ...detail });
  }

  /** @template {keyof Events} Type @param {Type} type @param {Events[Type]} detail */
  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** The answer to a question that was withdrawn before it left the browser. @returns {Response} */
const cancelledUnsent = (/** @type {string} */ id) => ({
  id,
  status: "cancelled",
  reason: "client",
  source: "model",
  output_text: "",
  usage: {},
  timings: {},
});
