/**
 * Requests for a person and ratings of answers. Each is sent until the server confirms it, over any number of
 * connections. Sending one twice does no harm.
 *
 * @import { ClientMessage, ErrorDetail } from "./protocol.js"
 * @import { Events, Handoff, Language, Person, Rating } from "./replyline-client.js"
 */

export class Care {
  /** @type {{ event_id: string, language: Language } | null} */ #request = null;
  /** @type {Map<string, { event_id: string, rating: Rating }>} by response_id */ #ratings = new Map();
  #offered = false;
  /** @type {Handoff | null} the one that is open */ #open = null;
  /** @type {Person | null} who answers; null as long as no person was asked */ #person = null;
  #send;
  #emit;
  #newEventId;

  /**
   * @param {(message: ClientMessage) => void} send sends it if there is a session
   * @param {<Type extends "handoff" | "rated">(type: Type, detail: Events[Type]) => void} emit
   * @param {() => string} newEventId
   */
  constructor(send, emit, newEventId) {
    this.#send = send;
    this.#emit = emit;
    this.#newEventId = newEventId;
  }

  /** Return whether a person was requested and the server has not answered yet. */
  get wanted() {
    return this.#request !== null;
  }

  /** @param {Language} language */
  request(language) {
    this.#request ??= { event_id: this.#newEventId(), language };
    this.#tell();
    this.#sendRequest();
  }

  /** Rate an answer; its last rating counts. @param {string} response_id @param {Rating} rating */
  rate(response_id, rating) {
    this.#ratings.set(response_id, { event_id: this.#newEventId(), rating });
    this.#sendRating(response_id);
  }

  /** A session has started: send everything again that was not confirmed. @param {boolean} offered @param {boolean} isAnother */
  begin(offered, isAnother) {
    this.#offered = offered;
    if (isAnother) this.#open = this.#person = null; // for a continued session the server sends both
    this.#tell();
    this.#sendRequest();
    for (const response_id of this.#ratings.keys()) this.#sendRating(response_id);
  }

  /** Forget the erased conversation. */
  forget() {
    this.#ratings.clear();
    this.#request = this.#open = this.#person = null;
    this.#tell();
  }

  /** @param {Person} message */
  onPerson({ state, name }) {
    this.#person = { state, name };
    if (state === "bot" || state === "resolved") this.#open = null;
    this.#tell();
  }

  /** @param {Handoff & { event_id?: string }} message */
  onHandoff({ handoff_id, reason, created_at }) {
    this.#request = null;
    this.#open = { handoff_id, reason, created_at };
    this.#tell();
  }

  /** @param {{ response_id: string, event_id?: string, rating?: Rating }} message */
  onRated({ response_id, event_id, rating }) {
    if (this.#ratings.get(response_id)?.event_id !== event_id) return; // rated again in the meantime
    this.#ratings.delete(response_id);
    this.#emit("rated", { response_id, rating: rating ?? null });
  }

  /** Return whether the error belongs to one of these messages. @param {string} event_id @param {ErrorDetail} error */
  onError(event_id, error) {
    if (this.#request?.event_id === event_id) {
      this.#request = null;
      this.#tell(error);
      return true;
    }
    for (const [response_id, rated] of this.#ratings) {
      if (rated.event_id !== event_id) continue;
      this.#ratings.delete(response_id);
      this.#emit("rated", { response_id, rating: null, error });
      return true;
    }
    return false;
  }

  #tell(/** @type {ErrorDetail | undefined} */ error = undefined) {
    const person = this.#person;
    this.#emit("handoff", { offered: this.#offered, wanted: this.wanted, open: this.#open, person, error });
  }

  #sendRequest() {
    if (this.#request) this.#send({ type: "handoff.request", ...this.#request });
  }

  #sendRating(/** @type {string} */ response_id) {
    this.#send({ type: "feedback", response_id, ...this.#ratings.get(response_id) });
  }
}
