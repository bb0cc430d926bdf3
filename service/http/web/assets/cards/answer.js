// Predictions, what was chosen and why, the promise and the receipt.

import { byId, h } from "../basics/dom.js";
import { ms, percent, pointName, shortLabel } from "../basics/format.js";
import { snippets } from "../calls/snippets.js";

/** Show an answer; `t` is the colour of its resolution. */
export function showAnswer(answer, terms, t, file) {
  const { budget } = answer;
  byId("answer").replaceChildren(
    h("ol", { class: "predictions" }, answer.predictions.map(prediction)),
    h(
      "div",
      { class: "tags" },
      h("span", { class: "tag point ramp", vars: { "--t": t } }, pointName(answer)),
      answer.expected_accuracy !== null &&
        h("span", { class: "tag" }, `expected accuracy ${percent(answer.expected_accuracy)}${answer.accuracy_source === "interpolated" ? " (interpolated)" : ""}`),
      h(
        "span",
        { class: answer.weights === "cached" ? "tag" : "tag cold", id: "answer-weights" },
        answer.weights === "cached" ? "weights ready" : "weights generated",
      ),
    ),
    h("dl", { class: "tiles" }, promise(budget), receipt(budget)),
    h("p", { class: "reason", id: "answer-reason" }, answer.reason),
    snippets(terms, file),
  );
  const best = answer.predictions[0];
  const bar = byId("answer-bar");
  bar.hidden = false;
  bar.dataset.state = budget.met === false ? "missed" : "met";
  bar.textContent = `${shortLabel(best.label)} ${percent(best.score, 0)} · ${answer.resolution}\u202fpx · ${ms(budget.spent_ms)}`;
  byId("answer-said").textContent =
    `${shortLabel(best.label)}, ${percent(best.score, 0)}, at ${answer.resolution} pixels in ${ms(budget.spent_ms)}.`;
}

function prediction({ label, score }) {
  return h(
    "li",
    null,
    h("span", { class: "name", title: label }, shortLabel(label)),
    h("span", null, percent(score)),
    h("span", { class: "bar", "aria-hidden": "true" }, h("span", { vars: { "--share": `${100 * score}%` } })),
  );
}

function promise(budget) {
  const of = budget.budget_ms === null ? "no budget given" : `of ${ms(budget.budget_ms)} allowed`;
  return tile("Predicted", ms(budget.predicted_ms), of, "");
}

function receipt(budget) {
  if (budget.budget_ms === null) return tile("Took", ms(budget.spent_ms), "no budget to meet", "");
  const spare = budget.budget_ms - budget.spent_ms;
  return budget.met
    ? tile("Took", ms(budget.spent_ms), `met, ${ms(spare)} to spare`, "met")
    : tile("Took", ms(budget.spent_ms), `missed by ${ms(-spare)}`, "missed");
}

function tile(name, value, note, kind) {
  return h(
    "div",
    { class: `tile ${kind}`, id: `tile-${name.toLowerCase()}` },
    h("dt", null, name),
    h("dd", null, value, h("span", { class: "note" }, note)),
  );
}
