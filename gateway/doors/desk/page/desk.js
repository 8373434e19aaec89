/**
 * The desk: people see who waits, take a conversation, answer, and give it back. j and k choose a conversation, t takes
 * it, r goes to the reply, Ctrl-Enter sends, Esc leaves the reply.
 */

import { h, isComposing } from "./chat-dom.js";
import { newEventId, safeStorage } from "./replyline-browser.js";

const RETRY_MS = 2_000;
const MINUTE_MS = 60_000;

/** @typedef {{ session_id: string, state: string, epoch: number, since: number, reason?: string, language?: string, name?: string, mine?: boolean, last?: string }} Chat */
/** @typedef {{ n: number, message_id: string, by: "customer" | "agent", name: string, text: string }} Said */
/** @typedef {{ chat: Chat, turns: { user: string, assistant: string, entries: string[] }[], said: Said[] }} Whole */

class Desk extends HTMLElement {
  #storage = safeStorage("sessionStorage");
  #token = this.#storage.get("replyline:desk:token") ?? "";
  #name = this.#storage.get("replyline:desk:name") ?? "";
  #next = -1;
  /** @type {Chat[]} */ #chats = [];
  #chosen = "";
  #shown = "";
  /** @type {{ session_id: string, message_id: string, text: string } | null} not confirmed yet */ #unsent = null;
  #running = false;

  #count = h("p", { role: "status" });
  #list = h("ul", { class: "queue" });
  #title = h("h2", {}, "No conversation chosen");
  #about = h("p", { class: "about" });
  #log = h("div", { class: "log", role: "log", "aria-live": "polite", "aria-label": "Conversation", tabindex: "0" });
  #fault = h("p", { role: "alert" });
  #input = h("textarea", { id: "reply", rows: "3", maxlength: "8000" });
  #take = this.#button("Take", () => this.#move("taken"), "primary");
  #back = this.#button("Hand back", () => this.#move("bot"));
  #resolve = this.#button("Resolve", () => this.#move("resolved"));
  #send = this.#button("Send", () => this.#say(), "primary");
  #reply = h("div", {}, h("label", { for: "reply" }, "Your reply"), this.#input);
  #login = this.#loginForm();
  #queue = h("section", { "aria-labelledby": "waiting" }, h("h1", { id: "waiting" }, "Waiting"), this.#count, this.#list);
  #conversation = h(
    "section",
    { "aria-label": "Chosen conversation" },
    this.#title,
    this.#about,
    this.#log,
    this.#fault,
    this.#reply,
    h("div", { class: "actions" }, this.#take, this.#send, this.#back, this.#resolve),
    h("p", { class: "about" }, "Keys: j, k choose · t takes · r replies · Ctrl-Enter sends · Esc leaves the reply"),
  );

  connectedCallback() {
    document.addEventListener("keydown", (event) => this.#onKey(event));
    if (this.#name) this.#open();
    else this.append(this.#login);
  }

  /** @param {string} words @param {() => void} act @param {string} [kind] */
  #button(words, act, kind) {
    return h("button", { type: "button", class: kind, onclick: act }, words);
  }

  #loginForm() {
    const name = h("input", { id: "name", required: true, maxlength: "64", autocomplete: "name" });
    const token = h("input", { id: "token", type: "password", autocomplete: "off" });
    const enter = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.#name = name.value.trim();
      this.#token = token.value.trim();
      this.#storage.set("replyline:desk:name", this.#name);
      this.#storage.set("replyline:desk:token", this.#token);
      this.#open();
    };
    return h(
      "form",
      { class: "login", onsubmit: enter },
      h("h1", {}, "Desk"),
      h("label", { for: "name" }, "Your name"),
      name,
      h("label", { for: "token" }, "Token (empty on the gateway’s own machine without token checks)"),
      token,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Open")),
    );
  }

  #open() {
    this.replaceChildren(this.#queue, this.#conversation);
    this.#show();
    if (!this.#running) this.#follow();
  }

  // --- the gateway -------------------------------------------------------------------------------------------

  /** @param {string} path @param {object} [body] @returns {Promise<any>} */
  async #ask(path, body) {
    /** @type {Record<string, string>} */
    const headers = { "Replyline-Agent": String.fromCharCode(...new TextEncoder().encode(this.#name)) };
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    if (body) headers["Content-Type"] = "application/json";
    const response = await fetch(`/desk/${path}`, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
    const answer = await response.json();
    if (response.ok) return answer;
    if (response.status === 401 || answer.error.code === "not_an_agent") this.#refused(answer.error.message);
    throw new Error(answer.error.message);
  }

  /** Ask for another token. What was typed is kept. @param {string} why */
  #refused(why) {
    this.#storage.remove("replyline:desk:name");
    this.#running = false;
    this.replaceChildren(h("p", { role: "alert" }, why), this.#login);
  }

  async #follow() {
    this.#running = true;
    while (this.#running) {
      try {
        const { next, chats } = await this.#ask(`chats?after=${this.#next}`.replace("after=-1", ""));
        this.#next = next;
        this.#chats = chats;
        this.#fault.textContent = "";
        if (!this.#running) return;
        this.#show();
        await this.#read();
      } catch (error) {
        this.#fault.textContent = String(/** @type {Error} */ (error).message);
        await new Promise((done) => setTimeout(done, RETRY_MS));
      }
    }
  }

  async #read() {
    if (!this.#chosen) return;
    const chosen = this.#chosen;
    /** @type {Whole} */
    const whole = await this.#ask(`chat?session_id=${encodeURIComponent(chosen)}`);
    if (chosen === this.#chosen) this.#showConversation(whole);
  }

  /** @param {string} to */
  async #move(to) {
    const chat = this.#chat;
    if (!chat) return;
    await this.#try(async () => {
      const moved = await this.#ask("move", { session_id: chat.session_id, to, epoch: chat.epoch });
      Object.assign(chat, { mine: false }, moved);
      this.#show();
      if (to === "taken") this.#input.focus();
      else this.#choose("");
    });
  }

  async #say() {
    const text = this.#input.value.trim();
    const chat = this.#chat;
    if (!text || !chat?.mine) return;
    if (this.#unsent?.text !== text || this.#unsent.session_id !== chat.session_id)
      this.#unsent = { session_id: chat.session_id, message_id: newEventId(), text };
    const unsent = this.#unsent;
    await this.#try(async () => {
      await this.#ask("say", unsent);
      this.#unsent = null;
      if (this.#input.value.trim() === text) this.#input.value = "";
    });
  }

  /** @param {() => Promise<void>} work */
  async #try(work) {
    try {
      await work();
      this.#fault.textContent = "";
    } catch (error) {
      this.#fault.textContent = String(/** @type {Error} */ (error).message);
    }
  }

  // --- what is shown -----------------------------------------------------------------------------------------

  get #chat() {
    return this.#chats.find(({ session_id }) => session_id === this.#chosen);
  }

  #show() {
    const waiting = this.#chats.filter(({ state }) => state === "waiting").length;
    const count = `${waiting} waiting, ${this.#chats.length - waiting} taken`;
    if (this.#count.textContent !== count) this.#count.textContent = count;
    const focused = this.#list.contains(document.activeElement);
    this.#list.replaceChildren(...this.#chats.map((chat) => h("li", {}, this.#item(chat))));
    if (focused) this.#list.querySelector("[aria-current=true]")?.focus();
    const chat = this.#chat;
    this.#take.hidden = !chat || Boolean(chat.mine);
    for (const element of [this.#reply, this.#send, this.#back, this.#resolve]) element.hidden = !chat?.mine;
  }

  /** @param {Chat} chat */
  #item({ session_id, state, since, reason, language, name, last }) {
    const minutes = Math.max(0, Math.floor((Date.now() - since) / MINUTE_MS));
    const about = [state === "taken" ? `with ${name}` : `waits ${minutes} min`, reason, language].filter(Boolean);
    return h(
      "button",
      { type: "button", "aria-current": String(session_id === this.#chosen), onclick: () => this.#choose(session_id) },
      h("span", {}, last || session_id.slice(0, 16)),
      h("span", { class: "about" }, about.join(" · ")),
    );
  }

  /** @param {string} session_id */
  #choose(session_id) {
    this.#chosen = session_id;
    this.#shown = "";
    this.#log.replaceChildren();
    this.#title.textContent = session_id ? `Conversation ${session_id.slice(0, 16)}` : "No conversation chosen";
    this.#about.textContent = "";
    this.#show();
    this.#try(() => this.#read());
  }

  /** Add what is new: a live region announces each addition. @param {Whole} whole */
  #showConversation({ chat, turns, said }) {
    this.#about.textContent = [chat.state, chat.name, chat.reason, chat.language].filter(Boolean).join(" · ");
    const lines = [
      ...turns.flatMap(({ user, assistant, entries }) => [
        ["Customer", user],
        [entries.length ? `Assistant, by ${entries.join(", ")}` : "Assistant", assistant],
      ]),
      ...said.map(({ by, name, text }) => [by === "agent" ? name : "Customer", text]),
    ].filter(([, text]) => text);
    const whole = JSON.stringify(lines);
    if (whole === this.#shown) return;
    const begun = this.#shown ? JSON.parse(this.#shown).length : 0;
    const isLonger = begun && JSON.stringify(lines.slice(0, begun)) === this.#shown;
    if (!isLonger) this.#log.replaceChildren();
    for (const [who, text] of lines.slice(isLonger ? begun : 0))
      this.#log.append(h("p", {}, h("span", { class: "who" }, who), text));
    this.#shown = whole;
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  // --- keys --------------------------------------------------------------------------------------------------

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (isComposing(event) || this.#login.isConnected) return;
    const isTyping = document.activeElement === this.#input;
    if (isTyping && event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#say();
    else if (isTyping && event.key === "Escape") this.#log.focus();
    else if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "j" || event.key === "k") this.#step(event.key === "j" ? 1 : -1);
    else if (event.key === "t" && !this.#take.hidden) this.#move("taken");
    else if (event.key === "r" && !this.#reply.hidden) this.#input.focus();
    else return;
    event.preventDefault();
  }

  /** @param {number} by */
  #step(by) {
    const at = this.#chats.findIndex(({ session_id }) => session_id === this.#chosen);
    const next = this.#chats[at < 0 ? 0 : Math.min(this.#chats.length - 1, Math.max(0, at + by))];
    if (next) this.#choose(next.session_id);
  }
}

customElements.define("replyline-desk", Desk);
