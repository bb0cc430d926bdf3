// What the service would choose: the same rule as its policy, on the numbers of /resolutions.

const rank = (point) => point.accuracy?.top1 ?? point.resolution / 10000;

/**
 * The most accurate frontier point predicted to fit the budget; if none fits, the fastest.
 * For a typical image, until the service itself says what this one would get.
 */
export function choose(points, budget) {
  const options = points
    .filter((point) => point.frontier)
    .map((point) => ({ point, predicted: predicted(point) }));
  if (options.length === 0) return null;
  const fitting = options.filter((option) => option.predicted <= budget);
  if (fitting.length === 0) {
    const fastest = options.reduce((a, b) => (b.predicted < a.predicted ? b : a));
    return { ...fastest, fits: false };
  }
  const best = fitting.reduce((a, b) => (rank(b.point) > rank(a.point) ? b : a));
  return { ...best, fits: true };
}

const ALIKE = 0.01;

/**
 * One point per size, as the service uses it: of the frontier first, ready ones before others; the
 * faster one of two that are about as accurate.
 */
export function servedSizes(points) {
  const best = new Map();
  const isBetter = (a, b) => {
    if (a.frontier !== b.frontier) return a.frontier;
    if (a.cached !== b.cached) return a.cached;
    const gain = rank(a) - rank(b);
    return Math.abs(gain) < ALIKE ? predicted(a) < predicted(b) : gain > 0;
  };
  for (const point of points) {
    const known = best.get(point.resolution);
    if (!known || isBetter(point, known)) best.set(point.resolution, point);
  }
  return [...best.values()].sort((a, b) => a.resolution - b.resolution);
}

export const predicted = (point) => Math.max(0.05, point.smallest_budget_ms + (point.cold_ms ?? 0));

export const samePoint = (a, b) =>
  Boolean(a && b) &&
  a.resolution === b.resolution &&
  a.mode === b.mode &&
  (a.precision ?? "float") === (b.precision ?? "float");

/** Whether two points are one main network, in whichever arithmetic. */
export const sameWeights = (a, b) => a.resolution === b.resolution && a.mode === b.mode;
