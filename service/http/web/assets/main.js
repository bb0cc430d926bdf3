// The page put together: what is known, what was asked, and who hears of it.

import { classify, getReady, getResolutions, getVersion, Problem, useKey } from "./api.js";
import { showAnswer } from "./answer.js";
import { choose } from "./choice.js";
import { byId, h } from "./dom.js";
import { frontierPlot, pointsTable } from "./frontier-plot.js";
import { ms, percent } from "./format.js";
import { entryOf, refusalOf, requestHistory } from "./history.js";
import { loadPanel } from "./load.js";
import { clear, tell } from "./notice.js";
import { pictureCard } from "./picture.js";
import { budgetAt, positionOf, rampPosition, roundBudget } from "./scale.js";
import { sweep } from "./sweep.js";
import { showTimeline } from "./timeline.js";
import { weightsPanel } from "./weights.js";

const REFRESH_MS = 4000;
const WAIT_READY_MS = 700;
const SETTLE_MS = 160;

const state = { catalogue: null, budget: 25, used: null, extra: 0 };
const points = () => state.catalogue?.operating_points ?? [];
const rampOf = (resolution) => rampPosition(resolution, points().map((point) => point.resolution));

// ---------------------------------------------------------------- what the service says of itself

function showStatus(text, kind) {
  const pill = byId("status");
  if (pill.textContent !== text) pill.textContent = text;
  pill.dataset.state = kind;
}

let loading = null;

/** Ask for the operating points; callers that come meanwhile share one question. */
function refresh() {
  loading ??= getResolutions()
    .then((catalogue) => {
      state.catalogue = catalogue;
      showCatalogue();
      return catalogue;
    })
    .finally(() => {
      loading = null;
    });
  return loading;
}

function showCatalogue() {
  const { catalogue } = state;
  picture.setCropRatio(catalogue.crop_ratio);
  weights.show(catalogue);
  pointsTable(catalogue.operating_points);
  fillPins();
  showChoice();
  showFacts();
}

function showFacts() {
  const { catalogue } = state;
  const facts = [
    ["model", `${catalogue.model} ${catalogue.model_version}`],
    ["engine", `${catalogue.engine} on ${catalogue.device}`],
  ];
  if (state.version) facts.push(["version", state.version]);
  byId("facts").replaceChildren(
    ...facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

function fillPins() {
  const select = byId("pin");
  const all = [...new Set(points().map((point) => point.resolution))].sort((a, b) => a - b);
  if (select.options.length === all.length + 1) return;
  const chosen = select.value;
  select.replaceChildren(
    h("option", { value: "" }, "service chooses"),
    ...all.map((resolution) => h("option", { value: resolution }, `${resolution} px`)),
  );
  select.value = chosen;
}

/** Keep asking until the service is ready, then keep the numbers fresh. */
async function follow() {
  for (;;) {
    let pause = REFRESH_MS;
    try {
      await getReady();
      if (!state.version) state.version = (await getVersion()).version;
      const first = state.catalogue === null;
      if (first || !document.hidden) await refresh();
      showStatus("ready", "ready");
      clear(byId("page-notice"));
      if (first && !picture.current) picture.useFirstExample();
    } catch (error) {
      pause = WAIT_READY_MS;
      if (error.status === 401) await askForKey();
      else if (error.status === 503) showStatus(error.message.replace(/\.$/, ""), "wait");
      else {
        showStatus("not reachable", "down");
        if (error instanceof Problem) tell(byId("page-notice"), error);
        else throw error;
      }
    }
    await new Promise((wake) => setTimeout(wake, pause));
  }
}

function askForKey() {
  const dialog = byId("key-dialog");
  if (!dialog.open) dialog.showModal();
  return new Promise((done) => {
    byId("key-form").addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        useKey(byId("key-input").value);
        dialog.close();
      },
      { once: true },
    );
    dialog.addEventListener("close", done, { once: true });
  });
}

// ---------------------------------------------------------------- the budget

const slider = byId("budget");
const number = byId("budget-number");

function setBudget(budget, from = null) {
  state.budget = budget;
  if (from !== slider) slider.value = positionOf(budget);
  if (from !== number) number.value = budget;
  slider.setAttribute("aria-valuetext", ms(budget));
  showChoice();
  classifySoon();
}

/** What the budget would buy, before anything is sent. */
function showChoice() {
  const choice = choose(points(), state.budget, state.extra);
  plot.update({ points: points(), budget: state.budget, choice, used: state.used, extra: state.extra });
  const resolution = byId("would-resolution");
  const accuracy = byId("would-accuracy");
  if (!choice) return;
  resolution.replaceChildren(String(choice.point.resolution), h("span", { class: "unit" }, choice.fits ? "px" : "px, late"));
  accuracy.textContent = percent(choice.point.accuracy?.top1);
  for (const output of [resolution, accuracy]) output.classList.toggle("late", !choice.fits);
}

slider.addEventListener("input", () => setBudget(budgetAt(Number(slider.value)), slider));
number.addEventListener("change", () => {
  const budget = roundBudget(Number(number.value) || 1);
  number.value = budget;
  setBudget(budget, number);
});

// ---------------------------------------------------------------- classifying

let asked = 0;
let soon = 0;

function classifySoon() {
  clearTimeout(soon);
  soon = setTimeout(classifyNow, SETTLE_MS);
}

async function classifyNow() {
  clearTimeout(soon);
  const notice = byId("answer-notice");
  if (!picture.current) {
    if (state.catalogue) tell(notice, { title: "No picture yet", message: "Choose, drop or paste a picture first." });
    return;
  }
  asked += 1;
  const turn = asked;
  const resolution = Number(byId("pin").value) || null;
  const terms = { budget: state.budget, resolution, refuse: byId("refuse").checked };
  try {
    const answer = await classify(picture.current.blob, terms);
    heard(answer);
    if (turn === asked) showOne(answer, terms);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    history.add(refusalOf(error, terms.budget));
    if (turn === asked) showError(error);
  }
  refresh().catch(() => {}); // follow() tells if the service is gone
}

function showOne(answer, terms) {
  clear(byId("answer-notice"));
  byId("answer").classList.remove("stale");
  learnExtra(answer);
  state.used = answer;
  showAnswer(answer, terms, rampOf(answer.resolution));
  showTimeline(answer);
  picture.showSeen(answer.resolution, answer.predictions[0].label);
  showChoice();
}

function showError(error) {
  byId("answer").classList.add("stale");
  const actions = [];
  if (error.smallestBudget) {
    const enough = Math.ceil(error.smallestBudget * 1.1 * 10) / 10;
    actions.push([`Allow ${ms(enough)}`, () => setBudget(roundBudget(enough))]);
  }
  if (error.status === 401) actions.push(["Enter a key", () => askForKey().then(classifyNow)]);
  if (error.retryAfter || error.status === 0) actions.push(["Try again", classifyNow]);
  tell(byId("answer-notice"), error, actions);
}

/** What this picture costs beyond the typical one that the quoted budgets are for. */
function learnExtra(answer) {
  const point = points().find((p) => p.resolution === answer.resolution && p.mode === answer.mode && p.precision === answer.precision);
  if (point && answer.weights === "cached" && answer.timing_ms.queue < 1) {
    state.extra = answer.budget.predicted_ms - point.smallest_budget_ms;
  }
}

const heard = (answer) => history.add(entryOf(answer));

byId("classify").addEventListener("click", classifyNow);
byId("pin").addEventListener("change", classifyNow);
byId("refuse").addEventListener("change", classifyNow);

// ---------------------------------------------------------------- parts

const history = requestHistory(rampOf);
const plot = frontierPlot((budget) => setBudget(roundBudget(budget)));
const picture = pictureCard(() => {
  state.extra = 0;
  strip.reset();
  classifyNow();
});
const context = () => ({
  picture: picture.current,
  points: points(),
  used: state.used,
  ratio: picture.cropRatio,
  rampOf,
});
const strip = sweep(context, heard);
const weights = weightsPanel(context, refresh, heard);
loadPanel(context, heard, (error, budget) => history.add(refusalOf(error, budget)));

slider.value = positionOf(state.budget);
number.value = state.budget;
showChoice();
follow();
