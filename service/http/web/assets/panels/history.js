// The last 100 requests as dots: height is the time spent, colour the resolution.

import { byId, onSize, perFrame, s } from "../basics/dom.js";
import { ms, percent, pointName, shortLabel } from "../basics/format.js";
import { logScale } from "../basics/scale.js";
import { hideTooltip, nearest, showTooltip, within } from "../basics/tooltip.js";

const KEPT = 100;
const LEFT = 46;
const RIGHT = 12;
const TOP = 16;
const BOTTOM = 8;
const HEIGHT = 172;
const STEPS = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

/** `rampOf(resolution)` gives the colour's place. */
export function requestHistory(rampOf) {
  const place = byId("history");
  const svg = s("svg", { role: "img", height: HEIGHT });
  place.append(svg);
  const entries = [];
  let width = 0;
  let placed = [];
  const draw = perFrame(render);
  onSize(place, (now) => {
    width = now;
    draw();
  });

  function render() {
    if (width === 0) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const times = entries.map((entry) => entry.spent).filter((spent) => spent > 0);
    const low = STEPS.findLast((step) => step <= Math.min(2, ...times)) ?? STEPS[0];
    const high = STEPS.find((step) => step >= Math.max(50, ...times)) ?? STEPS.at(-1);
    const y = logScale(low, high, HEIGHT - BOTTOM, TOP);
    const slot = (width - LEFT - RIGHT) / KEPT;
    const rows = STEPS.filter((step) => step >= low && step <= high).flatMap((step) => [
      s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(step), y2: y(step) }),
      s("text", { class: "axis-text", x: LEFT - 8, y: y(step) + 4, "text-anchor": "end" }, step),
    ]);
    placed = entries.map((entry, i) => ({
      entry,
      x: LEFT + slot * (i + 0.5),
      y: entry.spent > 0 ? y(entry.spent) : HEIGHT - BOTTOM,
    }));
    const unit = s("text", { class: "axis-text", x: LEFT, y: TOP - 5, "text-anchor": "start" }, "ms");
    svg.replaceChildren(...rows, unit, ...placed.map(({ entry, x, y: top }, i) => dot(entry, x, top, i)));
    const summary = summarise(entries);
    byId("history-summary").textContent = summary;
    svg.setAttribute("aria-label", `Time spent on each of the last requests, in ms. ${summary}`);
  }

  function dot(entry, x, y, i) {
    const r = 3.6;
    if (entry.refused) {
      return s("path", { class: "past refused", d: `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}` });
    }
    const latest = i === entries.length - 1 ? " new" : "";
    const kind = entry.met === false ? "past ramp missed" : "past ramp";
    return s("circle", { class: kind + latest, cx: x, cy: y, r: latest ? 5 : r, vars: { "--t": rampOf(entry.resolution) } });
  }

  svg.addEventListener("pointermove", (event) => {
    const found = nearest(placed, ...within(svg, event), 20);
    if (found) showTooltip(event.pageX, event.pageY, describe(found.entry));
    else hideTooltip();
  });
  svg.addEventListener("pointerleave", hideTooltip);

  return {
    /** Keep what an answer or an error says about a request. */
    add(entry) {
      entries.push(entry);
      if (entries.length > KEPT) entries.shift();
      draw();
    },
    redraw: draw,
  };
}

export function entryOf(answer) {
  return {
    resolution: answer.resolution,
    mode: answer.mode,
    precision: answer.precision,
    spent: answer.budget.spent_ms,
    budget: answer.budget.budget_ms,
    met: answer.budget.met,
    label: answer.predictions[0].label,
    weights: answer.weights,
    refused: null,
  };
}

export const refusalOf = (error, budget) => ({ spent: 0, budget, met: false, refused: error.title ?? "Failed" });

function describe(entry) {
  if (entry.refused) return ["Refused", entry.refused, entry.budget ? `budget ${ms(entry.budget)}` : ""];
  const allowed = entry.budget === null ? "no budget" : `of ${ms(entry.budget)}, ${entry.met ? "met" : "missed"}`;
  return [shortLabel(entry.label), pointName(entry), `${ms(entry.spent)} ${allowed}`, `weights ${entry.weights}`];
}

function summarise(entries) {
  if (entries.length === 0) return "None yet";
  const promised = entries.filter((entry) => !entry.refused && entry.budget !== null);
  const met = promised.filter((entry) => entry.met).length;
  const refused = entries.filter((entry) => entry.refused).length;
  const parts = [`${entries.length} shown`];
  if (promised.length > 0) parts.push(`${percent(met / promised.length, 0)} of budgets met`);
  if (refused > 0) parts.push(`${refused} refused`);
  return parts.join(", ");
}
