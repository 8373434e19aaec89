/** Show how an answer was made, on demand: its timings and tokens. */

import { h, icon } from "./chat-dom.js";

/** @typedef {import("./chat-strings.js").Strings} Strings */
/** @typedef {import("./protocol.js").Response} Response */

/** @param {Strings} strings @param {Response} response @returns {[HTMLElement, HTMLElement]} a button and what it opens */
export function factsDisclosure(strings, response) {
  const { usage, timings } = response;
  const rows = [
    [strings.ttft, duration(strings, timings.ttft_ms)],
    [strings.total, duration(strings, timings.total_ms)],
    [strings.queue, duration(strings, timings.queue_ms)],
    [strings.prefill, duration(strings, timings.prefill_ms)],
    [strings.tokensIn, tokensRead(strings, usage)],
    [strings.tokensOut, usage.output_tokens ? String(usage.output_tokens) : undefined],
    [strings.model, response.model],
  ].filter(([, value]) => value);
  const facts = h(
    "div",
    { class: "facts", hidden: true },
    timeline(strings, timings),
    h("dl", {}, ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
  );
  const button = h(
    "button",
    {
      type: "button",
      class: "facts-button",
      "aria-expanded": "false",
      title: strings.facts,
      onclick: () => {
        facts.hidden = !facts.hidden;
        button.setAttribute("aria-expanded", String(!facts.hidden));
      },
    },
    h("span", { class: "visually-hidden" }, `${strings.facts}: `),
    duration(strings, timings.total_ms) ?? "…",
    icon("chevron"),
  );
  return [button, facts];
}

/** Draw queue, reading and writing to scale. @param {Strings} strings @param {Response["timings"]} timings */
function timeline(strings, { queue_ms = 0, prefill_ms = 0, ttft_ms, total_ms }) {
  if (!ttft_ms || !total_ms) return null;
  const parts = { queue: queue_ms, prefill: prefill_ms, writing: total_ms - ttft_ms };
  const segments = Object.entries(parts).map(([name, ms]) => {
    const segment = h("span", { class: name, title: strings[/** @type {keyof typeof parts} */ (name)] });
    segment.style.flexGrow = String(Math.max(ms, 0));
    return segment;
  });
  return h("div", { class: "timeline", "aria-hidden": "true" }, ...segments);
}

/** @param {Strings} strings @param {Response["usage"]} usage */
function tokensRead(strings, { input_tokens, cached_tokens }) {
  if (!input_tokens) return undefined;
  return cached_tokens ? `${input_tokens} (${strings.cached(cached_tokens)})` : String(input_tokens);
}

/** @param {Strings} strings @param {number | undefined} ms */
function duration(strings, ms) {
  if (ms === undefined || ms === null) return undefined;
  return ms < 1000
    ? `${Math.round(ms)} ${strings.milliseconds}`
    : `${(ms / 1000).toFixed(2)} ${strings.seconds}`;
}
