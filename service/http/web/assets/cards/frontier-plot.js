// Accuracy against this host's latency, on the slider's own scale.

import { byId, h, onSize, perFrame, s } from "../basics/dom.js";
import { ms, percent, pointName } from "../basics/format.js";
import { samePoint } from "../calls/choice.js";
import {
  BUDGET_MAX,
  BUDGET_MIN,
  BUDGET_TICKS,
  linearScale,
  logScale,
  rampPosition,
  ticks,
} from "../basics/scale.js";
import { hideTooltip, nearest, showTooltip, within } from "../basics/tooltip.js";

const LEFT = 46;
const RIGHT = 18;
const TOP = 14;
const BOTTOM = 26;

const accuracyOf = (point, points) =>
  point.accuracy?.top1 ?? rampPosition(point.resolution, points.map((p) => p.resolution));

/** Draws itself whenever its state changes; `onBudget(ms)` is called when the plot is dragged. */
export function frontierPlot(onBudget) {
  const place = byId("plot");
  let width = 0;
  let height = 0;
  let state = { points: [], budget: 25, choice: null, used: null, still: new Map() };
  let placed = [];
  let x = null;
  const draw = perFrame(render);

  const svg = s("svg", { role: "img" });
  place.append(svg);
  onSize(place, (nowWide, nowTall) => {
    width = nowWide;
    height = nowTall;
    draw();
  });

  function render() {
    const { points, budget, choice, used, still } = state;
    if (width === 0) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const known = points.some((point) => point.accuracy);
    const values = points.map((point) => accuracyOf(point, points));
    const low = values.length > 0 ? Math.min(...values) : 0;
    const high = values.length > 0 ? Math.max(...values) : 1;
    const pad = (high - low || 0.1) * 0.12;
    x = logScale(BUDGET_MIN, BUDGET_MAX, LEFT, width - RIGHT);
    const y = linearScale(low - pad, high + pad, height - BOTTOM, TOP);

    const grid = BUDGET_TICKS.flatMap((tick) => [
      s("line", { class: "grid", x1: x(tick), x2: x(tick), y1: TOP, y2: height - BOTTOM }),
      s("text", { class: "axis-text", x: x(tick), y: height - 9, "text-anchor": "middle" }, tick),
    ]);
    const rows = (known ? ticks(low - pad, high + pad, 5) : []).flatMap((tick) => [
      s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
      s(
        "text",
        { class: "axis-text", x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" },
        `${Number((100 * tick).toFixed(1))}%`,
      ),
    ]);

    const all = points.map((point) => point.resolution);
    placed = points.map((point, i) => ({
      point,
      x: x(still.get(keyOf(point)) ?? point.smallest_budget_ms),
      now: x(point.smallest_budget_ms),
      y: y(values[i]),
      t: rampPosition(point.resolution, all),
    }));
    const front = placed.filter((p) => p.point.frontier).sort((a, b) => a.x - b.x || a.y - b.y);
    const line = x(budget);
    const at = (point) => placed.find((p) => samePoint(p.point, point));
    const would = choice && at(choice.point);
    const last = used && at(used);

    svg.replaceChildren(
      s("rect", { class: "afford", x: LEFT, y: TOP, width: line - LEFT, height: height - BOTTOM - TOP }),
      ...grid,
      ...rows,
      s("path", { class: "front", d: steps(envelope(front)) }),
      s("line", { class: "budget-line", x1: line, x2: line, y1: TOP - 8, y2: height - BOTTOM }),
      ...front.filter((p) => Math.abs(p.now - p.x) > 3).map(drifted),
      ...placed.filter((p) => !p.point.frontier).map(dot),
      ...front.map(dot),
      ...(last ? [s("circle", { class: "used", cx: last.x, cy: last.y, r: 8.5 })] : []),
      ...(would
        ? [
            s("circle", { class: choice.fits ? "would" : "would late", cx: would.x, cy: would.y, r: 12 }),
            label(would, choice),
          ]
        : []),
    );
    svg.setAttribute("aria-label", summary(points, choice, budget));
  }

  svg.addEventListener("pointermove", (event) => {
    if (event.buttons === 1 && x) {
      onBudget(x.invert(within(svg, event)[0]));
      return;
    }
    const found = nearest(placed, ...within(svg, event), 28);
    if (found) showTooltip(event.pageX, event.pageY, describe(found.point));
    else hideTooltip();
  });
  svg.addEventListener("pointerleave", hideTooltip);
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch" || !x) return;
    hideTooltip();
    svg.setPointerCapture(event.pointerId);
    onBudget(x.invert(within(svg, event)[0]));
  });

  return {
    update(change) {
      state = { ...state, ...change };
      draw();
    },
  };
}

export const keyOf = ({ resolution, mode, precision }) => `${resolution} ${mode} ${precision}`;

/** Of points sorted by time, those that beat all before them: a line that never goes back. */
export function envelope(front) {
  let best = Infinity;
  return front.filter((p) => p.y < best && (best = p.y, true));
}

const drifted = ({ x, y, now }) => s("line", { class: "drifted", x1: x, x2: now, y1: y, y2: y });

function steps(front) {
  return front.map((p, i) => (i === 0 ? `M${p.x} ${p.y}` : `H${p.x}V${p.y}`)).join("");
}

function dot({ point, x, y, t }) {
  const kind = `${point.provenance} ${point.frontier ? "on" : "off"}`;
  const radius = point.frontier ? 5.5 : 4;
  const common = { class: `dot ramp ${kind}`, vars: { "--t": t } };
  if (point.precision === "int8") {
    return s("rect", { ...common, x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius, rx: 2 });
  }
  return s("circle", { ...common, cx: x, cy: y, r: radius });
}

function label(at, choice) {
  const { point } = choice;
  const text = point.accuracy
    ? `${point.resolution} px, ${percent(point.accuracy.top1)}`
    : `${point.resolution} px`;
  // Left of and above a frontier point there is nothing, unless the axis is near.
  const left = at.x > LEFT + 118;
  return s(
    "text",
    { class: "plot-label", x: at.x + (left ? -17 : 17), y: at.y + (left ? -7 : 24), "text-anchor": left ? "end" : "start" },
    text,
  );
}

function describe(point) {
  const run = point.latency_ms["1"];
  const lines = [pointName(point)];
  if (point.accuracy) {
    const { top1, top5, n, dataset } = point.accuracy;
    lines.push(`top-1 ${percent(top1)}, top-5 ${percent(top5)}`, `measured on ${n} images of ${dataset}`);
  }
  lines.push(
    `network ${ms(run.p50)} (p50), ${ms(run.p99)} (p99)`,
    `fits a budget of ${ms(point.smallest_budget_ms)}`,
    `${point.provenance}, ${point.cached ? "weights cached" : `cold: ${ms(point.cold_ms)} more`}`,
  );
  return lines;
}

function summary(points, choice, budget) {
  if (points.length === 0) return "Accuracy against latency; no operating points yet";
  const would = choice
    ? ` A budget of ${ms(budget)} buys ${pointName(choice.point)}${choice.fits ? "" : ", late"}.`
    : "";
  return `Accuracy against latency of ${points.length} operating points, ${points.filter((p) => p.frontier).length} of them on the frontier.${would} The same numbers are in the table below.`;
}

/** The same points as a table, for screen readers too. */
export function pointsTable(points) {
  const head = ["Operating point", "", "Top-1", "p50", "p99", "Smallest budget", "MACs", "Weights"];
  const rows = points.map((point) => [
    pointName(point),
    `${point.provenance}${point.frontier ? ", frontier" : ""}`,
    percent(point.accuracy?.top1),
    ms(point.latency_ms["1"].p50),
    ms(point.latency_ms["1"].p99),
    ms(point.smallest_budget_ms),
    `${Math.round(point.macs / 1e6)} M`,
    point.cached ? "cached" : "cold",
  ]);
  byId("points-table").replaceChildren(
    h("thead", null, h("tr", null, head.map((text) => h("th", { scope: "col" }, text || "Kind")))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((text) => h("td", null, text))))),
  );
}
