// Numbers as people read them.

const THIN = "\u202f";

export function ms(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const digits = value < 1 ? 2 : value < 99.95 ? 1 : 0;
  return `${trim(value.toFixed(digits))}${THIN}ms`;
}

export function percent(value, digits = 1) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return `${(100 * value).toFixed(digits)}${THIN}%`;
}

export function megabytes(bytes) {
  const mega = bytes / 1e6;
  return `${mega >= 100 ? mega.toFixed(0) : mega.toFixed(1)}${THIN}MB`;
}

export function count(value) {
  return value.toLocaleString("en").replaceAll(",", THIN);
}

export function ago(seconds) {
  if (seconds < 2) return "just now";
  if (seconds < 90) return `${Math.round(seconds)}${THIN}s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}${THIN}min ago`;
  return `${Math.round(seconds / 3600)}${THIN}h ago`;
}

/** An operating point in words: "160 px proxy". A precision is named only where it is unusual. */
export function pointName({ resolution, mode, precision }) {
  const extra = precision && precision !== "float" ? ` ${precision}` : "";
  return `${resolution}${THIN}px ${mode.replace("_", "-")}${extra}`;
}

/** "golden retriever, English retriever" -> "golden retriever": lists of synonyms are long. */
export const shortLabel = (label) => label.split(",")[0];

function trim(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
