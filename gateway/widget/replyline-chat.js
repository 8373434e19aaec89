/**
 * `<replyline-chat>`: the chat that any site embeds with one script tag.
 *
 *     <script type="module" src="https://shop.example/widget/replyline-chat.js"></script>
 *     <replyline-chat></replyline-chat>
 *
 * The element fills the box it is given. With the attribute `floating` it is a button in the corner that opens a
 * panel; a script tag with `data-auto` inserts that one by itself.
 *
 * Attributes: `url` (the gateway's WebSocket; by default the host that served this script), `lang` ("en", "zh"; by
 * default the page's, then the browser's), `heading`, `theme` ("light", "dark"; by default the system's), `floating`,
 * `data-consent-training`: the customer has agreed that what is said here be recorded and models be trained on it. It
 * is said at each connect; a script tag with `data-auto` may have it too.
 * Property `token`: for a gateway that asks who its customers are, a function that gives a fresh token (or a promise of
 * one), asked at each connect and before the last one expires: `chat.token = async () => (await fetch("/token")).text()`.
 * Slot `note`: the host's words under the input. A child list with `slot="suggestions"` (one a language, by its `lang`)
 * holds questions to be asked by a click. Custom properties: `--replyline-accent`, `--replyline-on-accent`.
 */

import { h, icon, isComposing } from "./chat-dom.js";
import { ChatPanel, name } from "./chat-panel.js";
import { chooseLanguage } from "./chat-strings.js";
import { styles } from "./chat-styles.js";

/** What a page's keyboard shortcuts listen to. */
const TYPING =
  "keydown keypress keyup beforeinput input textInput paste copy cut compositionstart compositionupdate compositionend";

/** The gateway that served this script. */
function ownGateway() {
  const url = new URL("../ws", import.meta.url);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

/** As its attribute has it at the moment. @param {HTMLElement} element */
const consentOf = ({ dataset }) => ({
  get training() {
    return dataset.consentTraining !== undefined && dataset.consentTraining !== "false";
  },
});

/**
 * The questions that the page suggests in a language.
 * @param {HTMLElement} element @param {string} language
 */
const suggestionsOf = (element, language) =>
  /** @type {HTMLElement[]} */ ([...element.querySelectorAll(':scope > [slot="suggestions"]')])
    .filter(({ lang }) => lang === "" || lang.toLowerCase().split("-")[0] === language)
    .flatMap((list) => [...list.querySelectorAll("li")].map((item) => item.textContent?.trim() ?? ""))
    .filter((question) => question !== "");

export class ReplylineChat extends HTMLElement {
  static observedAttributes = ["lang", "heading"];

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
    root.adoptedStyleSheets = [styles];
    for (const type of TYPING.split(" ")) root.addEventListener(type, (event) => this.#keepFromPage(event));
  }

  connectedCallback() {
    this.#panel ??= this.#createPanel();
    this.#localize();
    // In the corner of every page of a site, a chat that nobody opens should cost no connection.
    if (!this.hasAttribute("floating") || this.hasAttribute("open")) this.#panel.connect();
  }

  disconnectedCallback() {
    this.#panel?.disconnect();
  }

  attributeChangedCallback() {
    this.#localize();
  }

  /** Page scripts that check whether a key goes into a text field see this element, not the one inside. */
  get isContentEditable() {
    return this.shadowRoot?.activeElement?.matches("textarea") ?? false;
  }

  /** @param {Event} event */
  #keepFromPage(event) {
    const isOurs = /** @type {Node} */ (event.target).getRootNode() === this.shadowRoot; // not the page's, in a slot
    if (isOurs) event.stopPropagation();
  }

  #createPanel() {
    const panel = new ChatPanel({
      url: this.getAttribute("url") ?? ownGateway(),
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
    const wishes = [this.getAttribute("lang"), page?.lang, ...navigator.languages];
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

if (!customElements.get("replyline-chat")) customElements.define("replyline-chat", ReplylineChat);

const ownTags = [...document.querySelectorAll("script[data-auto]")].filter(
  (tag) => /** @type {HTMLScriptElement} */ (tag).src === import.meta.url,
);
if (ownTags.length > 0 && !document.querySelector("replyline-chat")) {
  const consent = /** @type {HTMLElement} */ (ownTags[0]).dataset.consentTraining;
  document.body.append(h("replyline-chat", { floating: true, "data-consent-training": consent }));
}
