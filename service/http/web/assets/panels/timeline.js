// Where the time of the last request went, against its budget.

import { byId, h } from "../basics/dom.js";
import { ms } from "../basics/format.js";

const STAGES = ["receive", "queue", "decode", "weights", "forward"];

/** Stages with their milliseconds; what no stage accounts for is "other". */
export function stagesOf(timing) {
  const named = STAGES.map((name) => ({ name, took: timing[name] }));
  const rest = timing.total - named.reduce((sum, stage) => sum + stage.took, 0);
  return [...named, { name: "other", took: Math.max(0, rest) }];
}

export const stageVars = (name, share) => ({ "--stage": `var(--stage-${name})`, "--share": String(share) });

export function showTimeline(answer) {
  const { timing_ms: timing, budget } = answer;
  const stages = stagesOf(timing);
  const end = 1.04 * Math.max(timing.total, budget.budget_ms ?? 0, budget.predicted_ms);
  const at = (value) => `${Math.min(100, (100 * value) / end)}%`;
  const said = stages.map(({ name, took }) => `${name} ${ms(took)}`).join(", ");
  byId("timeline").replaceChildren(
    h(
      "div",
      { class: "track", role: "img", "aria-label": `Stages of the last request: ${said}; ${ms(timing.total)} in all.` },
      h(
        "div",
        { class: "stages", vars: { "--share": at(timing.total) } },
        stages
          .filter(({ took }) => took > 0)
          .map(({ name, took }) => h("span", { vars: stageVars(name, took), title: `${name} ${ms(took)}` })),
      ),
      budget.budget_ms !== null && mark("", budget.budget_ms, end, `budget ${ms(budget.budget_ms)}`),
      mark("promise", budget.predicted_ms, end, `predicted ${ms(budget.predicted_ms)}`),
    ),
    h(
      "dl",
      { class: "stage-list" },
      stages.map(({ name, took }) =>
        h("div", null, h("dt", { vars: stageVars(name, 0) }, name), h("dd", null, ms(took))),
      ),
      h("div", null, h("dt", { vars: { "--stage": "transparent" } }, "total"), h("dd", null, ms(timing.total))),
    ),
  );
}

function mark(kind, value, end, text) {
  const share = value / end;
  const shift = share > 0.85 ? "-100%" : share < 0.12 ? "0%" : "-50%";
  const vars = { "--at": `${Math.min(100, 100 * share)}%`, "--shift": shift };
  return h("div", { class: `mark ${kind}`, vars }, h("span", null, text));
}
