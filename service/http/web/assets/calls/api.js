// The service, as the page calls it. Only its own origin: every address is relative.

const KEY = "san-api-key";
let key = read();

function read() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** Use this API key from now on, until the tab is closed. */
export function useKey(value) {
  key = value.trim();
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // kept in memory only, then
  }
}

const TITLES = {
  "not-an-image": "That file is not an image",
  "unsupported-format": "That kind of image is not read here",
  "corrupt-image": "That image is damaged",
  "image-too-large": "That image is too large",
  "body-too-large": "That file is too large",
  "impossible-budget": "No size is that fast",
  overloaded: "Too busy now",
  expired: "The time ran out in the queue",
  "not-ready": "Not ready yet",
};

/** An error of the service: RFC 9457 problem details, said as sentences. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? `The service answered with status ${status}.`);
    this.name = "Problem";
    this.status = status;
    this.kind = String(body.type ?? "").split(":").at(-1);
    this.title = TITLES[this.kind] ?? body.title ?? "The service refused";
    this.progress = body.progress ?? null;
    this.smallestBudget = body.smallest_budget_ms ?? null;
    this.expectedAccuracy = body.expected_accuracy ?? null;
    this.retryAfter = body.retry_after_ms ?? null;
  }
}

async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers["X-API-Key"] = key;
  let response;
  try {
    response = await fetch(path, { ...options, headers, redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, {
      title: "No connection",
      detail: "The service does not answer. Is it still running?",
    });
  }
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (response.ok && body !== null) return body;
  throw new Problem(response.status, body ?? {});
}

export const getResolutions = () => call("/resolutions");
export const getVersion = () => call("/version");
/** What the service would choose now, for a picture of this size. */
export function getPlan({ budget, bytes, width, height }) {
  const query = new URLSearchParams({ budget_ms: String(budget) });
  if (bytes) query.set("bytes", String(bytes));
  if (width && height) {
    query.set("width", String(width));
    query.set("height", String(height));
  }
  return call(`/plan?${query}`);
}

export const getReady = () => call("/readyz");

const at = (point) => `/resolutions/${point.resolution}`;
export const warm = (point) => call(`${at(point)}/warm?mode=${point.mode}`, { method: "POST" });
export const evict = (point) => call(`${at(point)}?mode=${point.mode}`, { method: "DELETE" });

/** The query of a classification: only what differs from the service's defaults. */
export function classifyPath({ budget, resolution, mode, precision, refuse }) {
  const query = new URLSearchParams();
  if (budget) query.set("budget_ms", String(budget));
  if (resolution) query.set("resolution", String(resolution));
  if (mode) query.set("mode", mode);
  if (precision) query.set("precision", precision);
  if (refuse) query.set("on_miss", "refuse");
  const text = query.toString();
  return text ? `/classify?${text}` : "/classify";
}

export function classify(blob, terms, signal) {
  return call(classifyPath(terms), {
    method: "POST",
    body: blob,
    signal,
    headers: { "Content-Type": "application/octet-stream" },
  });
}
