/**
 * Create the elements of the chat. A string child becomes a text node, and markup is never parsed, so text from a
 * server can never become an element.
 */

/**
 * @param {string} tag
 * @param {Record<string, string | boolean | EventListener | undefined>} [attributes] `onclick` and the like take
 *     functions, booleans are present or absent, undefined is left out
 * @param {...(Node | string | null | undefined)} children null and undefined are left out
 * @returns {any} the element; `any`, because `tag` names its class
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * Return whether a key belongs to an input method. Safari sends the Enter that takes a candidate after
 * `compositionend`, with the key code 229.
 * @param {KeyboardEvent} event
 */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

const SVG = "http://www.w3.org/2000/svg";

/** Outlines on a 20 × 20 grid. */
const ICONS = {
  send: "M10 16V4.5M5 9.2 10 4.2l5 5",
  stop: "M6 6h8v8H6z",
  spark: "M10 3.2c.6 4 2.2 5.9 6.3 6.8-4.1.9-5.7 2.8-6.3 6.8-.6-4-2.2-5.9-6.3-6.8 4.1-.9 5.7-2.8 6.3-6.8z",
  quote: "M8.5 6.5H4.5v4h4v-4zM8.5 10.5c0 2-1 3-3 3.5M15.5 6.5h-4v4h4v-4zM15.5 10.5c0 2-1 3-3 3.5",
  page: "M6 3.5h5.5L15 7v9.5H6zM11.3 3.7V7.2H15M8.3 10.5h4.2M8.3 13.3h4.2",
  clock: "M10 3.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM10 6.5V10l2.5 1.8",
  chevron: "M8 5.5 12.5 10 8 14.5",
  down: "M10 4v11.5M5 10.8l5 5 5-5",
  close: "M5.5 5.5l9 9M14.5 5.5l-9 9",
  person: "M10 10a3.1 3.1 0 1 0 0-6.2 3.1 3.1 0 0 0 0 6.2zM3.9 16.4c.6-2.9 2.9-4.4 6.1-4.4s5.5 1.5 6.1 4.4",
  thumb:
    "M3.5 9.5h3v7h-3zM6.5 9.5 9.6 3.6c1.4 0 2.1 1 1.9 2.2l-.6 2.7h4.2a1.5 1.5 0 0 1 1.5 1.9l-1.3 4.9a1.6 1.6 0 0 1-1.6 1.2H6.5",
  question: "M10 3.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM8.2 8.1a1.8 1.8 0 1 1 2.7 1.6c-.6.3-.9.7-.9 1.4M10 13.4v.1",
  chat: "M4 5.5h12v8.5H9l-3.5 2.8V14H4z",
};

/** @param {keyof typeof ICONS} name decorative: the element around it has the label */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", `icon icon-${name}`);
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}
