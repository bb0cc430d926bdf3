// The same picture with two budgets.

import { classify } from "../calls/api.js";
import { drawAsSeen } from "../cards/crop.js";
import { byId, h } from "../basics/dom.js";
import { ms, percent, shortLabel } from "../basics/format.js";
import { clear, tell } from "../basics/notice.js";
import { roundBudget } from "../basics/scale.js";

/** `context()` gives {picture, points, rampOf}; `onAnswer(answer)` hears of every request. */
export function compare(context, onAnswer) {
  const sides = [...byId("sides").children];
  const notice = byId("compare-notice");
  const summary = byId("compare-summary");
  let wanted = false;

  async function run() {
    const { picture, points, rampOf } = context();
    clear(notice);
    if (!picture) {
      tell(notice, { title: "No picture yet", message: "Choose a picture first." });
      return;
    }
    wanted = true;
    const answers = [];
    try {
      for (const side of sides) {
        const input = side.querySelector("input");
        const budget = roundBudget(Number(input.value) || 1);
        input.value = budget;
        const answer = await classify(picture.blob, { budget });
        answers.push(answer);
        onAnswer(answer);
        const crop = points.find((point) => point.resolution === answer.resolution)?.crop_ratio;
        show(side.querySelector(".side-answer"), answer, picture, crop, rampOf(answer.resolution));
      }
      summary.textContent = conclude(answers);
    } catch (error) {
      tell(notice, error);
    }
  }

  byId("compare-run").addEventListener("click", run);
  for (const side of sides) side.querySelector("input").addEventListener("change", run);
  return {
    /** Another picture: show it too, if two are compared. */
    again() {
      if (wanted) run();
    },
  };
}

function show(place, answer, picture, crop, t) {
  const best = answer.predictions[0];
  const canvas = h("canvas", { role: "img", "aria-label": `The picture at ${answer.resolution} pixels` });
  if (picture.bitmap && crop) drawAsSeen(canvas, picture.bitmap, answer.resolution, crop);
  const { budget } = answer;
  place.replaceChildren(
    canvas,
    h(
      "dl",
      { class: "ramp", vars: { "--t": t } },
      pair("Answer", `${shortLabel(best.label)}, ${percent(best.score, 0)}`),
      pair("Size", `${answer.resolution}\u202fpx ${answer.precision}`),
      pair("Expected accuracy", percent(answer.expected_accuracy)),
      pair("Took", `${ms(budget.spent_ms)}, ${budget.met ? "in time" : "late"}`),
    ),
  );
}

const pair = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));

function conclude([a, b]) {
  if (a.resolution === b.resolution) return `Both budgets buy ${a.resolution}\u202fpx here.`;
  const [small, large] = a.resolution < b.resolution ? [a, b] : [b, a];
  const same = small.predictions[0].index === large.predictions[0].index;
  return `${small.resolution} against ${large.resolution}\u202fpx: ${same ? "the same answer" : "another answer"}, ${ms(small.budget.spent_ms)} against ${ms(large.budget.spent_ms)}.`;
}
