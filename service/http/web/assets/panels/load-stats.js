// The plan of a load run, bounded, and the sums it is drawn from. No page and no clock in here.

export const LIMITS = { rate: [1, 200], seconds: [1, 30] };
export const SLICE_MS = 500;

const within = (value, [low, high], otherwise) =>
  Number.isFinite(value) ? Math.min(high, Math.max(low, Math.round(value))) : otherwise;

/** What will be sent, whatever was typed. */
export function boundedPlan({ rate, seconds, budgets }) {
  const plan = {
    rate: within(rate, LIMITS.rate, 20),
    seconds: within(seconds, LIMITS.seconds, 5),
    budgets: budgets.length > 0 ? budgets : [50],
  };
  return { ...plan, requests: plan.rate * plan.seconds };
}

export class LoadStats {
  constructor(plan) {
    this.plan = plan;
    this.sent = 0;
    this.held = 0;
    this.answered = 0;
    this.met = 0;
    this.refused = 0;
    this.failed = 0;
    this.accuracy = 0;
    this.rated = 0;
    this.spent = [];
    this.decode = [];
    this.arrivals = [];
    this.mix = new Map();
    this.slices = Array.from({ length: Math.ceil((plan.seconds * 1000) / SLICE_MS) }, () => ({
      spent: [],
      mix: new Map(),
      refused: 0,
    }));
  }

  slice(sentAt) {
    return this.slices[Math.min(this.slices.length - 1, Math.floor(sentAt / SLICE_MS))];
  }

  /** A request goes out. */
  send(sentAt, budget) {
    this.sent += 1;
    this.arrivals.push([sentAt, budget]);
  }

  answer(sentAt, answer) {
    this.answered += 1;
    this.met += answer.budget.met ? 1 : 0;
    if (answer.expected_accuracy !== null) {
      this.accuracy += answer.expected_accuracy;
      this.rated += 1;
    }
    this.spent.push(answer.budget.spent_ms);
    this.decode.push(answer.timing_ms.decode);
    const slice = this.slice(sentAt);
    slice.spent.push(answer.budget.spent_ms);
    for (const mix of [this.mix, slice.mix]) {
      mix.set(answer.resolution, (mix.get(answer.resolution) ?? 0) + 1);
    }
  }

  error(sentAt, status) {
    if (status === 429 || status === 503 || status === 422) {
      this.refused += 1;
      this.slice(sentAt).refused += 1;
    } else this.failed += 1;
  }
}

/**
 * What a server with one fixed size would have made of the same requests: they wait their turn, and
 * each takes `perImageMs`. It never refuses, as most servers do not.
 */
export function fixedServer(arrivals, perImageMs) {
  let free = 0;
  let met = 0;
  for (const [sentAt, budget] of arrivals) {
    free = Math.max(free, sentAt) + perImageMs;
    met += free - sentAt <= budget ? 1 : 0;
  }
  return arrivals.length > 0 ? met / arrivals.length : null;
}

/** The q-quantile of some numbers, by rank. */
export function quantile(values, q) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1 < 0 ? 0 : Math.ceil(q * sorted.length) - 1)];
}
