"""Shop pages with the single script tag that adds the chat."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FRAME = "<iframe sandbox='allow-scripts' style='width: 100%; height: 640px; border: 0' srcdoc='{page}'></iframe>"
OLD_BROWSER = """
  delete window.CSSStyleSheet;
  delete Document.prototype.adoptedStyleSheets;
  delete ShadowRoot.prototype.adoptedStyleSheets;
  delete String.prototype.toWellFormed;
  delete Crypto.prototype.randomUUID;
  for (const name of ["structuredClone", "ResizeObserver", "IntersectionObserver", "matchMedia", "visualViewport",
    "queueMicrotask", "requestIdleCallback", "AbortSignal", "BroadcastChannel", "TextEncoder"]) delete window[name];
  delete Navigator.prototype.languages;
  delete Array.prototype.at;
  delete String.prototype.replaceAll;
  delete Object.hasOwn;
  delete HTMLElement.prototype.inert;
  delete HTMLElement.prototype.showPopover;
"""
# What old libraries and monitoring scripts put in the place of the browser's own.
OLD_LIBRARIES = """
  const Real = window.WebSocket;
  window.WebSocket = function (...given) { return new Real(...given) };
  window.Event = function (event) { if (!event.type) throw new TypeError("an event of MooTools is made of another") };
  Element.prototype.remove = function () { this.parentNode.removeChild(this); return this };
  Array.from = (list) => [...list];
  Object.prototype.extend = Array.prototype.each = Array.prototype.entries = function () { return this };
"""
# Pages whose scripts handle all keys, clicks, wheels and selections themselves.
OVERBEARING = """
  window.addEventListener("keydown", (event) => event.stopImmediatePropagation(), true);
  for (const type of ["click", "mousedown", "touchmove", "wheel", "selectstart", "contextmenu"])
    document.addEventListener(type, (event) => event.preventDefault(), { passive: false });
"""
# What the page's own scripts have replaced: each use throws.
BROKEN_BROWSER = """
  const broken = () => { throw new TypeError("broken by the page") };
  for (const name of ["ResizeObserver", "IntersectionObserver", "MutationObserver", "matchMedia", "CSSStyleSheet",
    "requestIdleCallback", "requestAnimationFrame", "structuredClone"]) window[name] = broken;
  Crypto.prototype.randomUUID = HTMLElement.prototype.showPopover = broken;
  Object.defineProperty(Navigator.prototype, "languages", { get: broken });
  const sockets = [broken];
  window.WebSocket = new Proxy(WebSocket, { construct: (Real, given) => sockets.pop()?.() ?? new Real(...given) });
"""


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A page, and the browser options that open it."""

    style: str = ""
    body: str = "<h1>Shop</h1><p>Woven in one piece.</p>"
    html: str = "<html lang=en>"
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None
    framed: bool = False
    script: str = ""
    """Runs before anything of the page."""

    def page(self, origin: str) -> str:
        """Return the markup, with the widget of the gateway at `origin`."""
        tag = f'<script type="module" nonce="n0nce" src="{origin}/widget/replyline-chat.js" data-auto></script>'
        style = f'<style nonce="n0nce">{self.style}</style>' if self.style else ""
        page = f"<!doctype html>{self.html}<title>Shop</title>{style}{tag}<body>{self.body}</body></html>"
        frame = FRAME.format(page=page.replace("&", "&amp;").replace("'", "&#39;"))
        return f"<!doctype html><title>Shop</title><h1>Shop</h1>{frame}" if self.framed else page

    def policy_for(self, origin: str) -> str | None:
        """Return the page's Content-Security-Policy."""
        if self.policy is None:
            return None
        return self.policy.format(gateway=origin, socket=origin.replace("http", "ws"))


def screen(width: int, height: int) -> dict[str, Any]:
    """Return the options of a browser with a screen of this many px."""
    return {"viewport": {"width": width, "height": height}}


SHOPS = {
    "plain": Shop(),
    "dawn": Shop(style="html { font-size: 62.5% } body { font-size: 1.6rem }"),
    "root-24px": Shop(style="html { font-size: 24px }"),
    "reset": Shop(style="* { all: unset } button, textarea { display: none }"),
    "important": Shop(
        style="* { box-sizing: content-box !important; max-width: 100px !important; font-size: 9px !important; "
        "position: static !important; text-indent: 90px !important }"
    ),
    "inherited": Shop(
        style="html, body { visibility: hidden; direction: rtl; font: italic 40px/3 cursive; letter-spacing: 9px; "
        "word-spacing: 40px; text-transform: uppercase; text-align: center; color: red; color-scheme: dark; "
        "white-space: pre; pointer-events: none; user-select: none; cursor: none; zoom: 1 }"
    ),
    "turned": Shop(html="<html lang=ar dir=rtl>", body="<h1>متجر</h1><p>منسوجة بقطعة واحدة.</p>"),
    "policy-nonce": Shop(
        policy="default-src 'none'; script-src 'nonce-n0nce' {gateway}; style-src 'nonce-n0nce'; connect-src {socket}; "
        "require-trusted-types-for 'script'"
    ),
    "policy-hosts": Shop(policy="default-src 'self'; script-src 'self' {gateway}; connect-src {socket}"),
    "frame": Shop(framed=True),
    "320px": Shop(options=screen(320, 480)),
    "keyboard": Shop(options=screen(320, 256)),
    "sideways": Shop(options=screen(640, 320)),
    "zoomed": Shop(options={**screen(640, 360), "device_scale_factor": 2}),
    "animated": Shop(options={"reduced_motion": "no-preference"}),
    "dark": Shop(options={"color_scheme": "dark"}),
    "forced-colors": Shop(options={"color_scheme": "dark", "forced_colors": "active"}),
    "old-browser": Shop(script=OLD_BROWSER),
    "broken-browser": Shop(script=BROKEN_BROWSER),
    "old-libraries": Shop(script=OLD_LIBRARIES),
    "overbearing": Shop(script=OVERBEARING),
    "filtered": Shop(
        style="body > * { filter: blur(0); transform: scale(0.99); contain: strict; will-change: filter }"
    ),
    "entering": Shop(
        style="@keyframes enter { to { transform: translateY(40px) } } body > * { animation: enter 1ms both }",
        options={"reduced_motion": "no-preference"},
    ),
    "zoomed-root": Shop(style="html { zoom: 2 }"),
    "broken-observers": Shop(script="ResizeObserver.prototype.observe = () => { throw new TypeError('broken') }"),
    "vertical": Shop(style="html { writing-mode: vertical-rl }"),
    "moved": Shop(style="body { transform: translateX(0); height: 4000px }"),
    "moved-page": Shop(style="html { filter: grayscale(0.1); will-change: transform } body { height: 4000px }"),
    "contained": Shop(style="body { contain: paint; height: 4000px }"),
    "own-popovers": Shop(style="[popover] { inset: 0; margin: auto; padding: 40px; background: red }"),
    "flex": Shop(style="body { display: flex; gap: 200px; height: 100vh; overflow: hidden } body > * { flex: 1 }"),
}
