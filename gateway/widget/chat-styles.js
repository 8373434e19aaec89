/**
 * The chat's styles. Sizes are in px, because rem depends on the page and shops set their root to 10 px. The page's
 * rules apply to the host element, which therefore has no styles that the chat needs; `all: initial` stops inheritance.
 */

import { h } from "./chat-dom.js";

const DARK = `
  --surface: #171d1a;
  --ink: #e8eeea;
  --muted: #9fada5;
  --line: #2c3632;
  --accent: var(--replyline-accent, #8ad0b2);
  --on-accent: var(--replyline-on-accent, #0d1a14);
  --tint: #202a26;
  --term: #a6b3ac;
  --danger: #f2a194;
  color-scheme: dark;
`;

const RULES = `
/* No light-dark(): browsers from before 2024 lack it. */
.panel, .launcher {
  all: initial;
  direction: ltr; /* English and Chinese, also on an Arabic page */
  --surface: #fffefb;
  --ink: #1b2420;
  --muted: #59645d;
  --line: #e5e0d5;
  --accent: var(--replyline-accent, #1f5c47);
  --on-accent: var(--replyline-on-accent, #ffffff);
  --tint: #eef3ee;
  --term: #525d56;
  --danger: #9a3022;
  color-scheme: light;
  box-sizing: border-box;
  font: 400 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "PingFang SC", "Hiragino Sans GB",
    "Microsoft YaHei", "Noto Sans CJK SC", sans-serif;
  -webkit-text-size-adjust: 100%; text-size-adjust: 100%;
  -webkit-user-select: text; user-select: text;
  color: var(--ink);
}
:host([theme="dark"]) :is(.panel, .launcher) {${DARK}}
@media (prefers-color-scheme: dark) {
  :host(:not([theme="light"])) :is(.panel, .launcher) {${DARK}}
}
:host { display: block; height: 100%; }
:host([hidden]), [hidden] { display: none !important; }
@media print { :host([floating]) { display: none !important; } }

*, ::before, ::after { box-sizing: border-box; }
h2, p, ul, dl, dd { margin: 0; padding: 0; }
ul { list-style: none; }
button, textarea { font: inherit; color: inherit; }
button { border: 0; background: none; padding: 0; cursor: pointer; -webkit-tap-highlight-color: transparent; }
button:disabled { opacity: 0.5; cursor: default; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.icon {
  width: 1.25em; height: 1.25em; flex: none;
  fill: none; stroke: currentColor; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round;
}
.icon-stop { fill: currentColor; }
.visually-hidden {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
}

.panel {
  container-type: inline-size;
  position: relative;
  display: flex; flex-direction: column;
  height: 100%; min-height: 0;
  background: var(--surface);
}

/* Head */
header { display: flex; align-items: center; gap: 4px; padding: 18px 16px 14px 28px; border-bottom: 1px solid var(--line); }
.title { flex: 1; min-width: 0; min-height: 44px; display: flex; align-items: center; gap: 4px 14px; flex-wrap: wrap; }
h2 { font-size: 17px; font-weight: 600; letter-spacing: -0.01em; line-height: 1.3; }
.status { display: inline-flex; align-items: center; gap: 7px; font-size: 13px; color: var(--muted); }
.status::before { content: ""; width: 7px; height: 7px; border-radius: 50%; border: 1.5px solid var(--muted); }
.status[data-state="online"]::before { background: var(--accent); border-color: var(--accent); }
.tool { display: grid; place-items: center; min-width: 44px; height: 44px; padding-inline: 12px; border-radius: 12px; font-size: 14px; font-weight: 500; color: var(--muted); }
.tool:hover { background: var(--tint); color: var(--ink); }

/* Conversation */
.middle { position: relative; flex: 1; min-height: 0; display: flex; }
.log {
  flex: 1; min-width: 0; overflow-y: auto; overscroll-behavior: contain;
  padding: 28px; scrollbar-width: thin; scrollbar-color: var(--line) transparent;
}
.log:focus-visible { outline-offset: -2px; }
.empty { min-height: 100%; display: flex; flex-direction: column; justify-content: flex-end; gap: 20px; }
.greeting { font-size: 22px; font-weight: 600; letter-spacing: -0.02em; line-height: 1.3; text-wrap: balance; }
.suggestions { border-top: 1px solid var(--line); }
.suggestions li { border-bottom: 1px solid var(--line); }
.suggestions button { display: block; width: 100%; min-height: 48px; padding: 11px 0; text-align: start; transition: padding 160ms ease; }
.suggestions button:hover { color: var(--accent); padding-inline-start: 8px; }

.question { display: flex; justify-content: flex-end; margin-block: 32px 20px; }
.question:first-child { margin-block-start: 0; }
.question p {
  max-width: min(85%, 544px); padding: 10px 16px; border-radius: 18px 18px 4px 18px;
  background: var(--tint); white-space: pre-wrap; overflow-wrap: anywhere;
}
.answer { max-width: 640px; }
.prose { display: grid; gap: 0.75em; overflow-wrap: anywhere; }
.prose:empty { display: none; }
.prose p { white-space: pre-wrap; }
.prose p.quoted { padding-inline-start: 12px; border-inline-start: 3px solid var(--line); }
.waiting { display: flex; gap: 5px; height: 1.6em; align-items: center; }
.waiting i { width: 6px; height: 6px; border-radius: 50%; background: var(--muted); animation: breathe 1.2s ease-in-out infinite; }
.waiting i:nth-of-type(2) { animation-delay: 150ms; }
.waiting i:nth-of-type(3) { animation-delay: 300ms; }
@keyframes breathe { 0%, 60%, 100% { opacity: 0.25; } 30% { opacity: 1; } }

mark { padding-inline: 0.15em; border-radius: 3px; background: var(--tint); color: inherit; box-shadow: 0 1px 0 var(--accent); -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.from-help { margin-inline-start: 0.4em; font-size: 0.8125em; color: var(--muted); }
.from-help::before { content: "("; }
.from-help::after { content: ")"; }

/* Where an answer came from */
.foot { font-size: 13px; line-height: 1.5; color: var(--muted); }
.foot:not(:empty) { margin-top: 14px; }
.choices { display: flex; flex-wrap: wrap; gap: 8px; margin-bottom: 10px; }
.choices button { text-align: start; }
.basis { margin-bottom: 10px; padding-inline-start: 12px; border-inline-start: 2px solid var(--accent); overflow-wrap: anywhere; }
p.basis { padding-block: 4px; font-weight: 500; color: var(--ink); }
.basis summary { display: flex; align-items: flex-start; gap: 4px; color: var(--ink); }
.basis summary { min-height: 28px; padding-block: 4px; cursor: pointer; list-style: none; font-weight: 500; }
.basis summary::-webkit-details-marker { display: none; }
.basis summary .icon { color: var(--muted); transition: transform 160ms ease; margin-block-start: 1px; }
.basis[open] summary .icon { transform: rotate(90deg); }
.basis a { color: var(--accent); text-underline-offset: 2px; }
.basis > p { padding: 4px 0 8px; font-size: 14px; line-height: 1.6; white-space: pre-wrap; }
.meta { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 14px; min-height: 32px; }
.badge { display: inline-flex; align-items: center; gap: 6px; font-weight: 500; }
.badge.model, .badge.mixed, .badge.faq { color: var(--accent); }
.mark { padding-inline-start: 14px; border-inline-start: 1px solid var(--line); }
.rating { display: inline-flex; align-items: center; gap: 2px; margin-inline-start: auto; }
.rating + .facts-button { margin-inline-start: 0; }
.thumb { display: grid; place-items: center; width: 32px; height: 32px; border-radius: 8px; }
.thumb:hover { background: var(--tint); color: var(--ink); }
.thumb .icon { width: 18px; height: 18px; }
.thumb.down .icon { transform: rotate(180deg); }
.thumb[aria-pressed="true"] { color: var(--accent); background: var(--tint); }
.thumb[aria-pressed="true"] .icon { fill: currentColor; fill-opacity: 0.25; }
.rating-failed { padding-inline: 6px; color: var(--danger); }
.facts-button { display: inline-flex; align-items: center; min-height: 32px; margin-inline-start: auto; padding-inline: 10px 4px; border-radius: 8px; font-variant-numeric: tabular-nums; }
.facts-button:hover { background: var(--tint); color: var(--ink); }
.facts-button .icon { transition: transform 160ms ease; }
.facts-button[aria-expanded="true"] .icon { transform: rotate(90deg); }
.facts { margin-top: 8px; padding: 16px 18px; border-radius: 12px; background: var(--tint); color: var(--ink); }
.timeline { display: flex; gap: 2px; height: 4px; margin-bottom: 14px; }
.timeline span { min-width: 2px; border-radius: 2px; background: var(--accent); }
.timeline .queue { opacity: 0.25; }
.timeline .prefill { opacity: 0.55; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(184px, 1fr)); gap: 4px 32px; }
dl > div { display: flex; justify-content: space-between; gap: 16px; }
dt { color: var(--term); }
dd { text-align: end; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.error { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 16px; margin-bottom: 8px; font-size: 15px; color: var(--danger); }
.quiet {
  min-height: 36px; padding: 4px 14px; border: 1px solid var(--line); border-radius: 10px;
  font-size: 14px; font-weight: 500; color: var(--ink);
}
.foot > .quiet:first-child { margin-bottom: 10px; }
.quiet:hover:enabled { border-color: var(--muted); }
.latest {
  position: absolute; inset: auto auto 12px 50%; transform: translateX(-50%); display: grid; place-items: center;
  width: 40px; height: 40px; border: 1px solid var(--line); border-radius: 50%; background: var(--surface);
}

/* Asking */
.notice {
  display: flex; align-items: center; justify-content: space-between; gap: 16px; margin: 0 20px 12px; padding: 10px 16px;
  border-radius: 12px; background: var(--tint); font-size: 14px;
}
.care { display: flex; align-items: center; justify-content: space-between; gap: 8px 16px; margin: 0 20px 8px; padding-inline: 8px; font-size: 14px; }
.care p { display: flex; flex-wrap: wrap; align-items: center; gap: 2px 10px; min-width: 0; line-height: 1.45; }
.care[data-state="open"] { margin-block-end: 12px; padding: 10px 16px; border-radius: 12px; background: var(--tint); }
.care[data-state="failed"] p { color: var(--danger); }
.reference { color: var(--muted); font-variant-numeric: tabular-nums; }
.person { display: inline-flex; align-items: center; gap: 8px; flex: none; min-height: 36px; padding: 4px 10px; border-radius: 10px; font-weight: 500; color: var(--muted); }
.person:hover:enabled { background: var(--tint); color: var(--ink); }
form {
  display: flex; align-items: flex-end; gap: 8px; margin: 0 20px; padding: 5px 5px 5px 18px;
  border: 1px solid var(--line); border-radius: 22px;
}
form:focus-within { border-color: var(--accent); box-shadow: 0 0 0 1px var(--accent); }
textarea {
  flex: 1; min-width: 0; max-height: 152px; padding: 7px 0; border: 0; outline: 0; resize: none;
  background: none; font-size: 16px; line-height: 1.5; /* below 16px, iOS zooms in */
}
textarea:focus-visible { outline: 0; } /* the form wears the ring */
textarea::placeholder { color: var(--muted); opacity: 1; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.send { display: grid; place-items: center; flex: none; width: 38px; height: 38px; border-radius: 50%; background: var(--accent); color: var(--on-accent); }
.send:hover { opacity: 0.9; }
slot {
  display: block; padding: 10px 28px max(14px, env(safe-area-inset-bottom));
  font-size: 13px; line-height: 1.5; color: var(--muted);
}
::slotted(*) { margin: 0; unicode-bidi: plaintext; text-align: start; }

@container (max-width: 480px) {
  header { padding: 12px 8px 10px 20px; }
  .log { padding: 20px; }
  form { margin-inline: 12px; }
  slot { padding-inline: 20px; }
  .notice, .care { margin-inline: 12px; }
}

/* The button in the corner */
.launcher, .closer { display: none; }
:host([floating]) {
  position: fixed; inset: auto; width: auto; height: auto; margin: 0; border: 0; padding: 0; overflow: visible;
  background: none; color: inherit;
  /* With any of these on the element, as by "body > *", the corner is the element's own. */
  transform: none !important; translate: none !important; rotate: none !important; scale: none !important;
  filter: none !important; backdrop-filter: none !important; perspective: none !important; contain: none !important;
  will-change: auto !important; container-type: normal !important; content-visibility: visible !important;
  animation: none !important; transition: none !important;
}
:host([floating]) :is(.panel, .launcher) {
  position: fixed; z-index: 2147483000;
  inset: auto max(20px, env(safe-area-inset-right)) max(20px, env(safe-area-inset-bottom)) auto;
}
:host([floating]) .closer { display: grid; }
:host([floating]) .launcher {
  display: grid; place-items: center; cursor: pointer; width: 58px; height: 58px; border-radius: 50%; font-size: 20px;
  background: var(--accent); color: var(--on-accent); box-shadow: 0 6px 24px rgb(0 0 0 / 0.2);
}
:host([floating]) .panel {
  width: min(420px, 100% - 40px); height: min(680px, 100% - 40px); overflow: hidden; /* vh knows no zoom of the page's */
  border: 1px solid var(--line); border-radius: 20px; box-shadow: 0 16px 64px rgb(0 0 0 / 0.2);
}
:host([floating][open]) .launcher, :host([floating]:not([open])) .panel { display: none; }
@media (max-width: 480px), (max-height: 480px) {
  :host([floating]) .panel { inset: 0; width: auto; height: 100vh; height: 100dvh; border: 0; border-radius: 0; }
}
/* A phone's keyboard, or a zoom of 400 %, leaves so little. */
@media (max-height: 320px) {
  header { padding-block: 0; }
  .title { flex-wrap: nowrap; }
  .log { padding-block: 8px; }
  .care { margin-block-end: 0; }
  slot { padding-block: 4px; }
}

@media (prefers-reduced-motion: reduce) {
  *, ::before, ::after { animation: none !important; transition: none !important; }
}
@media (forced-colors: active) {
  .send, .launcher { border: 1px solid ButtonText; }
  .thumb[aria-pressed="true"] { outline: 2px solid ButtonText; }
  mark { border-bottom: 1px solid; }
}
`;

/**
 * Style a shadow root by a constructed sheet, which the strictest `style-src` allows; browsers from before 2023 get an
 * element.
 * @param {ShadowRoot} root
 */
export function addStyles(root) {
  try {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(RULES);
    root.adoptedStyleSheets = [sheet];
  } catch {
    root.append(h("style", {}, RULES));
  }
}
