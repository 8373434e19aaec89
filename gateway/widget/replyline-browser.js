/**
 * Storage, random ids, well-formed text and what a page may have replaced, also where a browser or Node lacks or
 * forbids them. Never throws.
 */

/**
 * Return what a function returns; undefined if the browser lacks or refuses what it uses, or a page's script has
 * replaced that by something that throws.
 * @template T @param {() => T} use @returns {T | undefined}
 */
export function attempt(use) {
  try {
    return use();
  } catch {
    return undefined;
  }
}

/** @type {Map<string, string | null>} values the browser refuses; null: removed */ const pageMemory = new Map();

/**
 * Return a storage that keeps values in memory, for the life of the page, if the browser refuses to store them: in a
 * sandboxed frame, under strict privacy settings, over its quota. In Node, where many customers may share one process,
 * each call returns a separate memory.
 * @param {"sessionStorage" | "localStorage"} kind
 */
export function safeStorage(kind) {
  const inPage = typeof document !== "undefined";
  const memory = inPage ? pageMemory : new Map();
  /** @template T @param {(storage: Storage) => T} use @returns {T | undefined} undefined if the browser refuses */
  const inStorage = (use) => (inPage ? attempt(() => use(globalThis[kind])) : undefined);
  return {
    /** @param {string} key @returns {string | null} */
    get: (key) => (memory.has(key) ? memory.get(key) : inStorage((storage) => storage.getItem(key))) ?? null,

    /** @param {string} key @param {string} value */
    set(key, value) {
      if (inStorage((storage) => (storage.setItem(key, value), storage.getItem(key) === value))) memory.delete(key);
      else memory.set(key, value);
    },

    /** @param {string} key */
    remove(key) {
      if (inStorage((storage) => (storage.removeItem(key), storage.getItem(key) === null))) memory.delete(key);
      else memory.set(key, null);
    },
  };
}

/** Return a random id. `crypto.randomUUID` exists only on pages served over HTTPS or from the machine itself. */
export const newEventId = () =>
  attempt(() => crypto.randomUUID()) ??
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/**
 * Return a copy in which U+FFFD replaces each lone surrogate, such as half of a cut emoji: UTF-8 cannot encode it.
 * @template T @param {T} value a string, or plain objects and arrays that hold strings @returns {T}
 */
export const wellFormed = (value) => /** @type {T} */ (replaceSurrogates(value));

/** @param {unknown} value @returns {unknown} */
function replaceSurrogates(value) {
  if (typeof value === "string") return value.replace(/\p{Surrogate}/gu, "\uFFFD");
  if (Array.isArray(value)) return value.map(replaceSurrogates);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map((entry) => entry.map(replaceSurrogates)));
}

/**
 * Return plain objects, arrays, texts and numbers as JSON. Libraries of old pages give arrays a `toJSON` that
 * `JSON.stringify` would call.
 * @param {unknown} value @returns {string}
 */
export function toJson(value) {
  if (Array.isArray(value)) return `[${value.map(toJson).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const given = Object.entries(value).filter(([, each]) => each !== undefined);
  return `{${given.map(([name, each]) => `${JSON.stringify(name)}:${toJson(each)}`).join(",")}}`;
}
