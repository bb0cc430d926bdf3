// What the service would choose: the same rule as its policy, on the numbers of /resolutions.

const rank = (point) => point.accuracy?.top1 ?? point.resolution / 10000;

/**
 * The most accurate frontier point predicted to fit the budget; if none fits, the fastest.
 * `extra` is what this image costs beyond the typical one the service quotes budgets for.
 */
export function choose(points, budget, extra = 0) {
  const options = points
    .filter((point) => point.frontier)
    .map((point) => ({ point, predicted: predicted(point, extra) }));
  if (options.length === 0) return null;
  const fitting = options.filter((option) => option.predicted <= budget);
  if (fitting.length === 0) {
    const fastest = options.reduce((a, b) => (b.predicted < a.predicted ? b : a));
    return { ...fastest, fits: false };
  }
  const best = fitting.reduce((a, b) => (rank(b.point) > rank(a.point) ? b : a));
  return { ...best, fits: true };
}

export const predicted = (point, extra = 0) =>
  Math.max(0.05, point.smallest_budget_ms + (point.cold_ms ?? 0) + extra);

export const samePoint = (a, b) =>
  Boolean(a && b) &&
  a.resolution === b.resolution &&
  a.mode === b.mode &&
  (a.precision ?? "float") === (b.precision ?? "float");

/** One point per resolution, the most accurate: what a pin to that resolution would use. */
export function perResolution(points) {
  const best = new Map();
  for (const point of points) {
    const known = best.get(point.resolution);
    const better = known && (rank(point) - rank(known) || point.frontier - known.frontier);
    if (!known || better > 0) best.set(point.resolution, point);
  }
  return [...best.values()].sort((a, b) => a.resolution - b.resolution);
}
