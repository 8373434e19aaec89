/**
 * `<replyline-chat>`: the chat that any site embeds with one script tag.
 *
 *     <script type="module" src="https://shop.example/widget/replyline-chat.js"></script>
 *     <replyline-chat></replyline-chat>
 *
 * The element fills its box. With the attribute `floating` it is a button in the corner that opens a panel; a script
 * tag with `data-auto` inserts such an element.
 *
 * Attributes: `url` (the gateway's WebSocket; by default the host that served this script), `lang` ("en", "zh"; by
 * default the page's, then the browser's), `heading`, `theme` ("light", "dark"; by default the system's), `floating`,
 * `data-consent-training`: the customer has agreed that this conversation is recorded and used to train models. It is
 * sent with every connection; a script tag with `data-auto` may have it too.
 * Property `token`: for a gateway that checks tokens, a function that returns a fresh token (or a promise of one). It
 * is called for every connection and before the token expires: `chat.token = async () => (await
 * fetch("/token")).text()`. Slot `note`: the page's text below the input. A child list with `slot="suggestions"` (one
 * per language, by its `lang`) contains questions that a click asks. Custom properties: `--replyline-accent`,
 * `--replyline-on-accent`.
 *
 * The element that `data-auto` inserts stays when the page replaces its body or the body's content, until the page
 * calls the element's `remove()`. An element that the page placed is removed with the page's markup.
 */

import { h, icon, isComposing } from "./chat-dom.js";
import { ChatPanel, name } from "./chat-panel.js";
import { chooseLanguage } from "./chat-strings.js";
import { addStyles } from "./chat-styles.js";
import { attempt, safeStorage } from "./replyline-browser.js";

const NAME = "replyline-chat";
const RETURN_INTERVAL_MS = 100; // prevents an endless loop with a script that always removes the element
/** What pages use for shortcuts, for scrolling by script, and to forbid that text is selected or copied. */
const KEPT_FROM_PAGE =
  "keydown keypress keyup beforeinput input textInput paste copy cut compositionstart compositionupdate compositionend " +
  "wheel touchmove mousedown selectstart contextmenu dragstart";

/** The gateway that served this script. */
function ownGateway() {
  const url = new URL("../ws", import.meta.url);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

/** Return the consent from the element's attribute. @param {HTMLElement} element */
const consentOf = ({ dataset }) => ({
  get training() {
    return dataset.consentTraining !== undefined && dataset.consentTraining !== "false";
  },
});

/**
 * Return the questions that the page suggests in a language.
 * @param {HTMLElement} element @param {string} language
 */
const suggestionsOf = (element, language) =>
  /** @type {HTMLElement[]} */ ([...element.querySelectorAll(':scope > [slot="suggestions"]')])
    .filter(({ lang }) => lang === "" || lang.toLowerCase().split("-")[0] === language)
    .flatMap((list) => [...list.querySelectorAll("li")].map((item) => item.textContent?.trim() ?? ""))
    .filter((question) => question !== "");

export class ReplylineChat extends HTMLElement {
  static observedAttributes = ["lang", "heading", "open"];
  /** @type {ReplylineChat | null} the one that `data-auto` inserted */ static #auto = null;

  #storage = safeStorage("sessionStorage");
  #removed = false; // by the page, for good
  #returnedAt = -Infinity;
  #hears = false;
  /** @type {HTMLElement | null} */ #focused = null;

  /** @type {ChatPanel | null} made when the element enters a document, which is when its attributes are known */
  #panel = null;
  #closer = h(
    "button",
    { type: "button", class: "tool closer", onclick: () => this.#close() },
    icon("close"),
  );
  #launcher = h("button", { type: "button", class: "launcher", onclick: () => this.#open() }, icon("chat"));

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    addStyles(root);
    for (const type of KEPT_FROM_PAGE.split(" "))
      root.addEventListener(type, (event) => this.#keepFromPage(event), { passive: true });
    root.addEventListener("focusin", ({ target }) => (this.#focused = /** @type {HTMLElement} */ (target)));
    root.addEventListener("focusout", () => setTimeout(() => this.#onFocusLeft()));
    this.#launcher.addEventListener("probe", () => (this.#hears = true));
  }

  /** Forget the focus, unless it left because the page removed the element. */
  #onFocusLeft() {
    if (this.isConnected) this.#focused = this.#active;
  }

  /** Insert the chat of a script tag with `data-auto`, unless the page has one. @param {string | undefined} consent */
  static insertOnce(consent) {
    if (ReplylineChat.#auto || document.querySelector(NAME)) return;
    // Turbo morphs a page by `remove()`, which takes the chat away for good.
    const kept = { "data-auto": true, "data-turbo-permanent": true };
    const chat = h(NAME, { floating: true, ...kept, "data-consent-training": consent });
    ReplylineChat.#auto = chat;
    chat.#comeBack();
  }

  connectedCallback() {
    if (this.hasAttribute("data-auto")) ReplylineChat.#auto ??= this;
    // A copy, from a framework's snapshot of the page.
    if (this.hasAttribute("data-auto") && ReplylineChat.#auto !== this) return super.remove();
    if (this.#panel && this.#isDeaf()) return this.#renew();
    this.#removed = false;
    if (this.hasAttribute("floating")) this.#rise();
    if (!this.#panel) {
      this.#panel = this.#createPanel();
      const isOpen = this.#storage.get(this.#openKey);
      if (isOpen) this.toggleAttribute("open", isOpen === "true");
    }
    this.#localize();
    // A chat in the corner of every page of a site should use no connection until it is opened.
    if (!this.hasAttribute("floating") || this.hasAttribute("open")) this.#panel.connect();
    this.#panel.restoreView();
    if (document.activeElement === document.body) this.#focused?.focus({ preventScroll: true });
  }

  disconnectedCallback() {
    Promise.resolve().then(() => {
      if (this.isConnected) return; // only moved
      const auto = ReplylineChat.#auto;
      if (this !== auto) this.#panel?.disconnect();
      if (auto) auto.#comeBack();
    });
  }

  /** Remove the element for good. To show it again, insert it again. */
  remove() {
    this.#removed = true;
    this.#panel?.disconnect();
    super.remove();
  }

  /** @param {string} attribute */
  attributeChangedCallback(attribute) {
    if (attribute !== "open") this.#localize();
    else if (this.#panel) this.#storage.set(this.#openKey, String(this.hasAttribute("open")));
  }

  /** Page scripts that check whether a key goes into a text field see this element, not the one inside. */
  get isContentEditable() {
    return this.#active?.matches("textarea") ?? false;
  }

  // --- staying in the page -----------------------------------------------------------------------------------

  /** Insert the element of `data-auto` again, once there is a body without another chat. */
  #comeBack() {
    if (this.isConnected || this.#removed) return;
    if (document.querySelector(NAME)) return this.#panel?.disconnect();
    const waitMs = document.body ? this.#returnedAt + RETURN_INTERVAL_MS - performance.now() : RETURN_INTERVAL_MS;
    if (waitMs > 0) {
      setTimeout(() => this.#comeBack(), waitMs);
    } else {
      this.#returnedAt = performance.now();
      document.body.append(this);
    }
  }

  /**
   * Enter the top layer, where the corner is that of the window. Elsewhere a `transform`, `filter` or `contain` of the
   * page around would make it the page's, which scrolls away. Browsers from before 2024 have no such layer.
   */
  #rise() {
    const isAbove = attempt(() => {
      this.popover = "manual";
      if (!this.matches(":popover-open")) this.showPopover();
      return true;
    });
    if (!isAbove) this.removeAttribute("popover");
  }

  /** Return whether `document.open()` has erased the event listeners in here, as in all of the page. */
  #isDeaf() {
    this.#hears = false;
    const isSent = attempt(() => this.#launcher.dispatchEvent(new Event("probe")));
    return isSent !== undefined && !this.#hears;
  }

  /** Replace the element by a new one, which restores conversation, draft and open state from the tab's storage. */
  #renew() {
    const next = /** @type {ReplylineChat} */ (this.cloneNode(true));
    if ("token" in this) Object.assign(next, { token: this.token });
    if (ReplylineChat.#auto === this) ReplylineChat.#auto = next;
    this.replaceWith(next);
    if (this.#focused?.matches("textarea")) next.#panel?.focus();
  }

  /** @param {Event} event */
  #keepFromPage(event) {
    const isOurs = /** @type {Node} */ (event.target).getRootNode() === this.shadowRoot; // not the page's, in a slot
    if (isOurs) event.stopPropagation();
  }

  /** @returns {HTMLElement | null} */
  get #active() {
    return /** @type {HTMLElement | null} */ (this.shadowRoot?.activeElement ?? null);
  }

  get #url() {
    return this.getAttribute("url") ?? ownGateway();
  }

  get #openKey() {
    return `replyline:open:${this.#url}`;
  }

  #createPanel() {
    const panel = new ChatPanel({
      url: this.#url,
      token: () => /** @type {any} */ (this).token?.(),
      consent: consentOf(this),
      tools: [this.#closer],
    });
    panel.element.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const unused = event.key === "Escape" && !isComposing(event) && !event.defaultPrevented;
      if (unused && this.hasAttribute("floating")) this.#close();
    });
    this.shadowRoot?.append(panel.element, this.#launcher);
    return panel;
  }

  #localize() {
    const page = /** @type {HTMLElement | null} */ (this.parentElement?.closest("[lang]"));
    const wishes = [this.getAttribute("lang"), page?.lang, ...(attempt(() => navigator.languages) ?? [])];
    const { language, strings } = chooseLanguage(wishes);
    this.#panel?.localize(language, strings, this.getAttribute("heading"), suggestionsOf(this, language));
    name(this.#closer, strings.closeChat);
    name(this.#launcher, strings.openChat);
  }

  // --- folded to a button in the corner, or open (attribute `floating`) ----------------------------------------

  #open() {
    this.toggleAttribute("open", true);
    this.#panel?.connect();
    this.#panel?.focus();
  }

  #close() {
    this.toggleAttribute("open", false);
    this.#launcher.focus();
  }
}

// A second evaluation, of the script under another address, uses the first one's class and its chat.
if (!customElements.get(NAME)) customElements.define(NAME, ReplylineChat);
const Chat = /** @type {typeof ReplylineChat} */ (customElements.get(NAME));

/** Return the file's name: a redirect, as from http to https, gives a script another address than its tag. */
const fileOf = (/** @type {string} */ url) => url.replace(/[?#].*/, "").split("/").pop();
const ownTags = [...document.querySelectorAll("script[data-auto]")].filter(
  (tag) => fileOf(/** @type {HTMLScriptElement} */ (tag).src) === fileOf(import.meta.url),
);
if (ownTags.length > 0) {
  const insert = () => Chat.insertOnce(/** @type {HTMLElement} */ (ownTags[0]).dataset.consentTraining);
  // An `async` script runs before the page, which may place a chat itself, has been read.
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", insert);
  else insert();
}
