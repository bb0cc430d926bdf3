// Data to pixels, and the budget's scale that the slider and the plot share.

export const BUDGET_MIN = 1;
export const BUDGET_MAX = 250;
export const BUDGET_TICKS = [1, 2, 5, 10, 20, 50, 100, 250];

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

export function logScale(low, high, from, to) {
  const span = Math.log(high / low);
  const scale = (value) => from + ((to - from) * Math.log(clamp(value, low, high) / low)) / span;
  scale.invert = (position) => low * Math.exp((span * clamp((position - from) / (to - from), 0, 1)));
  return scale;
}

export function linearScale(low, high, from, to) {
  return (value) => from + ((to - from) * (value - low)) / (high - low || 1);
}

/** Round steps of 1, 2 or 5 that cover [low, high] with about `wanted` of them. */
export function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((size) => size >= raw);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9; i += 1) found.push(i * step);
  return found;
}

/** A slider position (0 to 1000) as a budget that reads well, and back. */
export function budgetAt(position) {
  const exact = BUDGET_MIN * (BUDGET_MAX / BUDGET_MIN) ** (position / 1000);
  return roundBudget(exact);
}

export function roundBudget(exact) {
  const value = clamp(exact, BUDGET_MIN, BUDGET_MAX);
  const step = value < 10 ? 0.1 : value < 50 ? 0.5 : 1;
  return Number((Math.round(value / step) * step).toFixed(1));
}

export function positionOf(budget) {
  const share = Math.log(clamp(budget, BUDGET_MIN, BUDGET_MAX) / BUDGET_MIN);
  return Math.round((1000 * share) / Math.log(BUDGET_MAX / BUDGET_MIN));
}

/** Where a resolution lies among all of them, 0 to 1: the colour it has everywhere. */
export function rampPosition(resolution, all) {
  const low = Math.min(...all);
  const high = Math.max(...all);
  return high > low ? clamp((resolution - low) / (high - low), 0, 1) : 0.5;
}
