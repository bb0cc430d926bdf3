// Predictions, what was chosen and why, the promise and the receipt.

import { classifyPath } from "./api.js";
import { byId, h } from "./dom.js";
import { ms, percent, pointName, shortLabel } from "./format.js";

/** Show an answer; `t` is the colour of its resolution. */
export function showAnswer(answer, terms, t) {
  const { budget } = answer;
  byId("answer").replaceChildren(
    h("ol", { class: "predictions" }, answer.predictions.map(prediction)),
    h(
      "div",
      { class: "tags" },
      h("span", { class: "tag point ramp", vars: { "--t": t } }, pointName(answer)),
      answer.expected_accuracy !== null &&
        h("span", { class: "tag" }, `expected accuracy ${percent(answer.expected_accuracy)}`),
      h(
        "span",
        { class: answer.weights === "cached" ? "tag" : "tag cold", id: "answer-weights" },
        `weights ${answer.weights}`,
      ),
    ),
    h("dl", { class: "tiles" }, promise(budget), receipt(budget)),
    h("p", { class: "reason", id: "answer-reason" }, answer.reason),
    command(terms),
  );
  const best = answer.predictions[0];
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
  return tile("Promise", ms(budget.predicted_ms), of, "");
}

function receipt(budget) {
  if (budget.budget_ms === null) return tile("Receipt", ms(budget.spent_ms), "no budget to meet", "");
  const spare = budget.budget_ms - budget.spent_ms;
  return budget.met
    ? tile("Receipt", ms(budget.spent_ms), `met, ${ms(spare)} to spare`, "met")
    : tile("Receipt", ms(budget.spent_ms), `missed by ${ms(-spare)}`, "missed");
}

function tile(name, value, note, kind) {
  return h(
    "div",
    { class: `tile ${kind}`, id: `tile-${name.toLowerCase()}` },
    h("dt", null, name),
    h("dd", null, value, h("span", { class: "note" }, note)),
  );
}

function command(terms) {
  const text = `curl --data-binary @picture.jpg '${location.origin}${classifyPath(terms)}'`;
  const copy = h("button", { type: "button", class: "plain" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Select it instead";
    }
  });
  return h(
    "div",
    { class: "command" },
    h("div", { class: "command-head" }, h("span", { class: "muted small" }, "The same from a shell"), copy),
    h("code", null, text),
  );
}
