// Load from this page to its own service, bounded, and what it does to latency and resolution.

import { classify } from "../calls/api.js";
import { byId, h, perFrame, s } from "../basics/dom.js";
import { count, ms, percent } from "../basics/format.js";
import { boundedPlan, fixedServer, LIMITS, LoadStats, quantile, SLICE_MS } from "./load-stats.js";
import { clear, tell } from "../basics/notice.js";
import { linearScale, logScale } from "../basics/scale.js";

const BUDGETS = [5, 10, 20, 50, 100, 250];
const TICK_MS = 20;
const MOST_IN_FLIGHT = 64; // more would only queue inside the browser
const LAST_WAIT_MS = 4000;
const SMALL_SIDE = 500;
const SMALL_BYTES = 120_000;

/** `context()` gives {picture, rampOf}; `onAnswer` and `onError` hear of every request. */
export function loadPanel(context, onAnswer, onError) {
  const button = byId("load-run");
  const notice = byId("load-notice");
  const view = byId("load-view");
  let abort = null;

  byId("load-budgets").replaceChildren(
    ...BUDGETS.map((budget) =>
      h(
        "label",
        null,
        h("input", { type: "checkbox", value: budget, checked: [10, 50, 100].includes(budget) }),
        String(budget),
      ),
    ),
  );
  view.replaceChildren(
    h("p", { class: "empty" }, "Under load the service lowers the resolution first and refuses second. Start a run to watch it."),
  );

  function readPlan() {
    const checked = byId("load-budgets").querySelectorAll("input:checked");
    const plan = boundedPlan({
      rate: Number(byId("load-rate").value),
      seconds: Number(byId("load-seconds").value),
      budgets: [...checked].map((box) => Number(box.value)),
    });
    byId("load-rate").value = plan.rate;
    byId("load-seconds").value = plan.seconds;
    return plan;
  }

  async function run() {
    const { picture, points, rampOf } = context();
    const fixed = largest(points);
    clear(notice);
    if (!picture) {
      tell(notice, { title: "No picture yet", message: "Choose a picture first; the load consists of copies of it." });
      return;
    }
    const plan = readPlan();
    const stats = new LoadStats(plan);
    const controller = new AbortController();
    abort = controller;
    button.textContent = "Stop";
    const blob = await smallCopy(picture);
    const draw = perFrame(() => view.replaceChildren(...render(stats, rampOf, view.clientWidth, fixed)));
    const flying = new Set();
    const begun = performance.now();
    const elapsed = () => performance.now() - begun;

    function send() {
      const budget = plan.budgets[Math.floor(Math.random() * plan.budgets.length)];
      const sentAt = elapsed();
      stats.send(sentAt, budget);
      const flight = classify(blob, { budget }, controller.signal)
        .then((answer) => {
          stats.answer(sentAt, answer);
          onAnswer(answer);
        })
        .catch((error) => {
          if (error.name === "AbortError") return;
          stats.error(sentAt, error.status);
          onError(error, budget);
        })
        .finally(() => {
          flying.delete(flight);
          draw();
        });
      flying.add(flight);
    }

    await new Promise((done) => {
      const timer = setInterval(() => {
        const due = Math.min(plan.requests, Math.floor((elapsed() / 1000) * plan.rate));
        while (stats.sent + stats.held < due) {
          if (flying.size >= MOST_IN_FLIGHT) stats.held += 1;
          else send();
        }
        draw();
        if (controller.signal.aborted || elapsed() >= plan.seconds * 1000) {
          clearInterval(timer);
          done();
        }
      }, TICK_MS);
    });
    const late = setTimeout(() => controller.abort(), LAST_WAIT_MS);
    await Promise.allSettled([...flying]);
    clearTimeout(late);
    abort = null;
    button.textContent = "Start";
    view.replaceChildren(...render(stats, rampOf, view.clientWidth, fixed));
    byId("load-said").textContent =
      `Load run over: ${stats.answered} of ${stats.sent} requests answered, ${percent(rate(stats.met, stats.sent), 0)} of all in time, ${stats.refused} refused.`;
  }

  button.addEventListener("click", () => {
    if (abort) abort.abort();
    else run().catch((error) => tell(notice, error));
  });
  for (const [id, limits] of [["load-rate", LIMITS.rate], ["load-seconds", LIMITS.seconds]]) {
    byId(id).min = limits[0];
    byId(id).max = limits[1];
  }
}

/** A copy that is cheap to send many times; large pictures are scaled down first. */
async function smallCopy({ blob, bitmap }) {
  if (blob.size <= SMALL_BYTES || !bitmap) return blob;
  const scale = Math.min(1, SMALL_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = h("canvas", {
    width: Math.max(1, Math.round(bitmap.width * scale)),
    height: Math.max(1, Math.round(bitmap.height * scale)),
  });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob((small) => done(small ?? blob), "image/jpeg", 0.85));
}

const rate = (part, whole) => (whole > 0 ? part / whole : null);

/** The largest of the points that were measured: what a server with one size would run. */
function largest(points) {
  const measured = points.filter((point) => point.measured && point.precision === "float");
  return measured.reduce((a, b) => (!a || (b.accuracy?.top1 ?? 0) > (a.accuracy?.top1 ?? 0) ? b : a), null);
}

/** What a fixed server would have done, beside what this one did. */
function versus(stats, fixed) {
  const network = fixed.latency_ms["1"].p50;
  const decode = quantile(stats.decode, 0.5) ?? 0;
  const rows = [
    ["This service", rate(stats.met, stats.sent), "one"],
    [`A fixed ${fixed.resolution}\u202fpx server, same traffic`, fixedServer(stats.arrivals, network + decode), "other"],
  ];
  return h(
    "div",
    { id: "load-against" },
    h(
      "dl",
      { class: "against" },
      rows.map(([name, share, kind]) =>
        h(
          "div",
          { class: kind },
          h("dt", null, name),
          h("dd", null, h("span", { class: "bar" }, h("span", { vars: { "--share": `${100 * (share ?? 0)}%` } })), h("b", null, `${percent(share, 0)} in time`)),
        ),
      ),
    ),
    h("p", { class: "muted small" }, `Good is 99\u202f% or more. The fixed server is calculated: one request after the other, ${ms(network)} for the network and ${ms(decode)} for decoding, both measured here.`),
  );
}

function render(stats, rampOf, width, fixed) {
  const kpis = [
    ["Sent", count(stats.sent)],
    ["In time", percent(rate(stats.met, stats.sent))],
    ["p50", ms(quantile(stats.spent, 0.5))],
    ["p99", ms(quantile(stats.spent, 0.99))],
    ["Accuracy", percent(rate(stats.accuracy, stats.rated))],
    ["Refused", count(stats.refused)],
  ];
  const notes = [];
  if (stats.held > 0) notes.push(`${count(stats.held)} were not sent: this browser had ${MOST_IN_FLIGHT} under way.`);
  if (stats.failed > 0) notes.push(`${count(stats.failed)} failed.`);
  return [
    h("dl", { class: "kpis" }, kpis.map(([name, value]) => h("div", { class: "tile" }, h("dt", null, name), h("dd", null, value)))),
    fixed && versus(stats, fixed),
    h("p", { class: "chart-title" }, h("span", null, "time spent, ms: median and p99 by half second"), h("span", null, notes.join(" "))),
    latencyChart(stats, width),
    h("p", { class: "chart-title" }, "share of resolutions by half second"),
    mixChart(stats, rampOf, width),
    legend(stats, rampOf),
  ].filter(Boolean);
}

const LEFT = 40;

function latencyChart(stats, width) {
  const height = 110;
  const x = linearScale(0, stats.slices.length, LEFT, width);
  const top = Math.max(20, quantile(stats.spent, 1) ?? 0);
  const y = logScale(1, top, height - 4, 8);
  const filled = stats.slices
    .map((slice, i) => ({ at: x(i + 0.5), p50: quantile(slice.spent, 0.5), p99: quantile(slice.spent, 0.99) }))
    .filter((slice) => slice.p50 !== null);
  const line = (key) => filled.map((slice) => `${slice.at},${y(slice[key])}`);
  const steps = [1, 10, 100, 1000].filter((step) => step <= top);
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Median and 99th percentile of the time spent, over the run" },
    steps.map((step) => s("line", { class: "grid", x1: LEFT, x2: width, y1: y(step), y2: y(step) })),
    steps.map((step) => s("text", { class: "axis-text", x: LEFT - 8, y: y(step) + 4, "text-anchor": "end" }, step)),
    filled.length > 0 && s("polygon", { class: "band", points: [...line("p50"), ...line("p99").reverse()].join(" ") }),
    filled.length > 0 && s("polyline", { class: "median", points: line("p50").join(" ") }),
  );
}

function mixChart(stats, rampOf, width) {
  const height = 70;
  const x = linearScale(0, stats.slices.length, LEFT, width);
  const bars = stats.slices.flatMap((slice, i) => {
    const total = slice.refused + [...slice.mix.values()].reduce((a, b) => a + b, 0);
    if (total === 0) return [];
    let below = height;
    const parts = [...slice.mix.entries()].sort((a, b) => b[0] - a[0]);
    const block = (n, attributes) => {
      const tall = (height * n) / total;
      below -= tall;
      return s("rect", { ...attributes, x: x(i) + 0.5, width: x(i + 1) - x(i) - 1, y: below, height: tall });
    };
    return [
      ...parts.map(([resolution, n]) => block(n, { class: "mix ramp", vars: { "--t": rampOf(resolution) } })),
      ...(slice.refused > 0 ? [block(slice.refused, { class: "mix refused" })] : []),
    ];
  });
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Resolutions used over the run, a bar per ${SLICE_MS} ms` },
    s("line", { class: "grid", x1: LEFT, x2: width, y1: height, y2: height }),
    bars,
  );
}

function legend(stats, rampOf) {
  const parts = [...stats.mix.entries()].sort((a, b) => b[0] - a[0]);
  return h(
    "ul",
    { class: "mix-legend", id: "load-mix" },
    parts.map(([resolution, n]) =>
      h(
        "li",
        null,
        h("span", { class: "swatch ramp", "aria-hidden": "true", vars: { "--t": rampOf(resolution) } }),
        `${resolution} px ${percent(n / Math.max(1, stats.answered), 0)}`,
      ),
    ),
  );
}
