/** Show an answer's text in paragraphs, and mark the parts that the model did not write. */

import { h } from "./chat-dom.js";

/** @typedef {import("./chat-strings.js").Strings} Strings */
/** @typedef {import("./protocol.js").Replaced} Replaced */
/** @typedef {{ from: number, to: number }} Stretch in UTF-16 units */

export class Prose {
  /** the text so far */ text = "";
  element = h("div", { class: "prose", dir: "auto" });

  /** Show that the answer has no text yet. @param {Strings} strings */
  wait(strings) {
    if (!this.text) this.element.replaceChildren(waiting(strings));
  }

  /** Show that no text will arrive. */
  stopWaiting() {
    if (!this.text) this.element.replaceChildren();
  }

  /** @param {string} text the text so far; existing nodes are not changed */
  show(text) {
    this.stopWaiting();
    this.text = text;
    const paragraphs = paragraphsOf(text);
    while (this.element.childElementCount > paragraphs.length) this.element.lastChild.remove();
    while (this.element.childElementCount < paragraphs.length) this.element.append(h("p"));
    paragraphs.forEach(({ from, to }, index) => {
      const shown = this.element.children[index];
      const paragraph = text.slice(from, to);
      if (shown.textContent !== paragraph) shown.textContent = paragraph;
    });
  }

  /** Set the first paragraphs apart as quotes. @param {number} count */
  quote(count) {
    [...this.element.children].slice(0, count).forEach((paragraph) => paragraph.classList.add("quoted"));
  }

  /** @param {string} text final @param {Replaced[]} replaced @param {Strings} strings */
  showMarked(text, replaced, strings) {
    this.text = text;
    const stretches = inUnits(text, replaced);
    this.element.replaceChildren(
      ...paragraphsOf(text).map((paragraph) => h("p", {}, ...pieces(text, paragraph, stretches, strings))),
    );
  }
}

/** @param {string} text @returns {Stretch[]} the paragraphs */
function paragraphsOf(text) {
  const found = [];
  let from = 0;
  for (const gap of [...text.matchAll(/\n{2,}/g), { 0: "", index: text.length }]) {
    if (text.slice(from, gap.index).trim()) found.push({ from, to: gap.index });
    from = gap.index + gap[0].length;
  }
  return found;
}

/** The wire counts code points. @param {string} text @param {Replaced[]} replaced @returns {Stretch[]} */
function inUnits(text, replaced) {
  const characters = [...text];
  const units = (/** @type {number} */ count) => characters.slice(0, count).join("").length;
  return replaced.map(({ offset, length }) => ({ from: units(offset), to: units(offset + length) }));
}

/** @param {string} text @param {Stretch} paragraph @param {Stretch[]} stretches in their order @param {Strings} strings */
function pieces(text, paragraph, stretches, strings) {
  const found = [];
  let at = paragraph.from;
  for (const { from, to } of stretches) {
    const [begin, end] = [Math.max(from, at), Math.min(to, paragraph.to)];
    const isHere = from === to ? from >= paragraph.from && from <= paragraph.to : begin < end;
    if (!isHere) continue;
    found.push(text.slice(at, begin));
    if (begin < end) found.push(h("mark", {}, text.slice(begin, end)));
    if (to <= paragraph.to) found.push(h("span", { class: "from-help" }, from === to ? strings.leftOut : strings.fromHelp));
    at = Math.max(at, end);
  }
  return [...found, text.slice(at, paragraph.to)].filter((piece) => piece !== "");
}

/** @param {Strings} strings */
const waiting = (strings) =>
  h(
    "div",
    { class: "waiting" },
    h("span", { class: "visually-hidden" }, strings.thinking),
    h("i"),
    h("i"),
    h("i"),
  );
