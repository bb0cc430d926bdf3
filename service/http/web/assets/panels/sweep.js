// The same picture at every resolution, side by side.

import { classify } from "../calls/api.js";
import { servedSizes } from "../calls/choice.js";
import { drawAsSeen } from "../cards/crop.js";
import { byId, h } from "../basics/dom.js";
import { ms, percent, shortLabel } from "../basics/format.js";
import { clear, tell } from "../basics/notice.js";

const ATTEMPTS = 6;

/**
 * Wire the sweep. `context()` gives {picture, points, rampOf}; `onAnswer(answer)` hears of
 * every request.
 */
export function sweep(context, onAnswer) {
  const button = byId("sweep-run");
  const strip = byId("strip");
  const notice = byId("sweep-notice");
  const summary = byId("sweep-summary");
  let running = false;
  let stop = false;

  async function run() {
    const { picture, points, rampOf } = context();
    clear(notice);
    if (!picture) {
      tell(notice, { title: "No picture yet", message: "Choose a picture first; the sweep classifies it at every resolution." });
      return;
    }
    const chosen = servedSizes(points);
    const cells = chosen.map((point) => cell(point, picture, rampOf));
    strip.replaceChildren(...cells);
    byId("sweep-scroll").hidden = false;
    running = true;
    stop = false;
    button.textContent = "Stop";
    const answers = [];
    try {
      for (const [i, point] of chosen.entries()) {
        if (stop) break;
        summary.textContent = `Classifying at ${point.resolution} px (${i + 1} of ${chosen.length})`;
        // One after the other: side by side they would queue behind each other and look slow.
        const pinned = { resolution: point.resolution, mode: point.mode, precision: point.precision };
        const say = (text) => (summary.textContent = `${point.resolution} px: ${text}`);
        let answer = await patiently(() => classify(picture.blob, pinned), say, () => stop);
        if (answer === null) break;
        // A cold start is not what this size costs.
        if (answer.weights === "generated") answer = await classify(picture.blob, pinned);
        answers.push(answer);
        fillCell(cells[i], answer, answers.at(-2));
        onAnswer(answer);
      }
      summary.textContent = conclude(answers);
    } catch (error) {
      summary.textContent = "The sweep ended early.";
      tell(notice, error);
    } finally {
      running = false;
      button.textContent = "Run the sweep";
    }
  }

  button.addEventListener("click", () => {
    if (running) stop = true;
    else run();
  });

  return {
    /** Forget a strip that belongs to another picture. */
    reset() {
      stop = true;
      byId("sweep-scroll").hidden = true;
      strip.replaceChildren();
      clear(notice);
      summary.textContent = "The same picture at every resolution: see where the answer changes.";
    },
  };
}

/** Ask again as often as the service says when; null if `stopped` says so meanwhile. */
async function patiently(ask, say, stopped) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await ask();
    } catch (error) {
      if (!error.retryAfter || attempt === ATTEMPTS) throw error;
      for (let left = Math.ceil(error.retryAfter / 1000); left > 0; left -= 1) {
        say(`the service is busy, asked again in ${left} s`);
        await new Promise((resolve) => setTimeout(resolve, Math.min(1000, error.retryAfter)));
        if (stopped()) return null;
      }
    }
  }
}

function cell(point, picture, rampOf) {
  const canvas = h("canvas", { role: "img", "aria-label": `The picture at ${point.resolution} pixels` });
  if (picture.bitmap) drawAsSeen(canvas, picture.bitmap, point.resolution, point.crop_ratio);
  return h(
    "li",
    { class: "pending ramp", "data-resolution": point.resolution, vars: { "--t": rampOf(point.resolution) } },
    canvas,
    h("div", { class: "res" }, `${point.resolution} px`, h("span", null, `${point.mode.replace("_", "-")}, ${point.precision}`)),
  );
}

function fillCell(node, answer, before) {
  const best = answer.predictions[0];
  const changed = before && before.predictions[0].index !== best.index;
  node.classList.remove("pending");
  node.classList.toggle("changed", Boolean(changed));
  const lines = [
    h("div", { class: "label", title: best.label }, shortLabel(best.label)),
    h("div", { class: "bar", "aria-hidden": "true" }, h("span", { vars: { "--share": `${100 * best.score}%` } })),
    h("div", { class: "meta" }, h("span", null, percent(best.score, 0)), h("span", null, ms(answer.budget.spent_ms))),
    answer.weights === "generated" && h("div", { class: "meta" }, "weights generated"),
    changed && h("div", { class: "changed-note" }, "answer changes"),
  ];
  node.append(...lines.filter(Boolean));
}

function conclude(answers) {
  if (answers.length === 0) return "Stopped before the first answer.";
  const changes = answers.filter(
    (answer, i) => i > 0 && answers[i - 1].predictions[0].index !== answer.predictions[0].index,
  );
  const final = shortLabel(answers.at(-1).predictions[0].label);
  if (changes.length === 0) return `Every resolution says “${final}”.`;
  const settled = changes.at(-1).resolution;
  const times = changes.length === 1 ? "once" : `${changes.length} times`;
  return `The answer changes ${times}; from ${settled} px on it is “${final}”.`;
}
