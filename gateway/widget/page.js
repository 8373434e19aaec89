/** The page's language switch. The page contains the texts of both languages; `lang` on <html> selects one. */

import { safeStorage } from "./replyline-browser.js";

const KEY = "harbor-and-pine:language";
const TITLES = { en: "Harbor & Pine · Customer care", zh: "Harbor & Pine · 客户服务" };

const storage = safeStorage("localStorage");

function preferred() {
  const wishes = [storage.get(KEY), ...(navigator.languages ?? [])].map((wish) =>
    wish?.slice(0, 2).toLowerCase(),
  );
  return wishes.find((wish) => wish && wish in TITLES) ?? "en";
}

/** @param {string} language */
function speak(language) {
  document.documentElement.lang = language;
  document.title = TITLES[/** @type {keyof typeof TITLES} */ (language)];
  document.querySelector("replyline-chat")?.setAttribute("lang", language);
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (
    document.querySelectorAll("[data-language]")
  )) {
    button.setAttribute("aria-pressed", String(button.dataset.language === language));
  }
}

document.querySelector(".languages")?.addEventListener("click", ({ target }) => {
  const language = /** @type {HTMLElement} */ (target).dataset.language;
  if (!language) return;
  storage.set(KEY, language);
  speak(language);
});

speak(preferred());
