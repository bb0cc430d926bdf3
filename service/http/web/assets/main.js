// Puts the page together: what is known, what was asked, and which parts are told.

import { classify, getPlan, getReady, getResolutions, getVersion, Problem, useKey } from "./calls/api.js";
import { showAnswer } from "./cards/answer.js";
import { camera } from "./cards/camera.js";
import { choose } from "./calls/choice.js";
import { compare } from "./panels/compare.js";
import { byId, h } from "./basics/dom.js";
import { frontierPlot, keyOf, pointsTable } from "./cards/frontier-plot.js";
import { ms, percent } from "./basics/format.js";
import { entryOf, refusalOf, requestHistory } from "./panels/history.js";
import { loadPanel } from "./panels/load.js";
import { clear, tell } from "./basics/notice.js";
import { pictureCard } from "./cards/picture.js";
import { budgetAt, positionOf, rampPosition, roundBudget } from "./basics/scale.js";
import { sweep } from "./panels/sweep.js";
import { showTimeline } from "./panels/timeline.js";
import { weightsPanel } from "./panels/weights.js";

const REFRESH_MS = 4000;
const WAIT_READY_MS = 700;
const SETTLE_MS = 160;

const state = { catalogue: null, budget: 25, used: null, planned: null, still: new Map(), model: "", startedAt: 0 };
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
      keepStill(catalogue);
      showCatalogue();
      return catalogue;
    })
    .finally(() => {
      loading = null;
    });
  return loading;
}

/** Points stay where they were when the page first saw them: one slow answer moves nothing. */
function keepStill(catalogue) {
  const model = `${catalogue.model} ${catalogue.model_version}`;
  if (state.model === model) return;
  state.model = model;
  state.still = new Map(catalogue.operating_points.map((point) => [keyOf(point), point.smallest_budget_ms]));
}

function showCatalogue() {
  const { catalogue } = state;
  picture.setCrops(catalogue.crop_ratio, catalogue.operating_points);
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
      byId("starting").hidden = true;
      byId("classify").disabled = false;
      clear(byId("page-notice"));
      if (first) await warmUp();
      if (first && !picture.current) picture.useFirstExample();
    } catch (error) {
      pause = WAIT_READY_MS;
      if (error.status === 401) await askForKey();
      else if (error.status === 503) showStarting(error);
      else {
        showStatus("not reachable", "down");
        if (error instanceof Problem) tell(byId("page-notice"), error);
        else throw error;
      }
    }
    await new Promise((wake) => setTimeout(wake, pause));
  }
}

/** The first request of a page pays for its connection; it is not a picture that anybody chose. */
async function warmUp() {
  try {
    const response = await fetch("/assets/examples/cat.jpg");
    const blob = await response.blob();
    for (let i = 0; i < 2; i += 1) await classify(blob, {});
  } catch {
    // The next one will tell.
  }
}

/** What it does before it can answer, and how long that will still take. */
function showStarting(error) {
  showStatus("starting", "wait");
  byId("starting").hidden = false;
  byId("classify").disabled = true;
  state.startedAt ||= performance.now();
  const bar = byId("starting-bar");
  const { progress } = error;
  const parts = [];
  if (progress) {
    bar.max = progress.total;
    bar.value = progress.done;
    parts.push(`${progress.done} of ${progress.total} steps done`);
  } else {
    bar.removeAttribute("value");
  }
  const waited = `waiting for ${Math.round((performance.now() - state.startedAt) / 1000)}\u202fs`;
  const left = progress?.seconds_left;
  parts.push(left > 0 ? `about ${Math.ceil(left)}\u202fs left` : waited);
  byId("starting-text").textContent = `${error.message} ${parts.join(", ")}.`;
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
  state.planned = null;
  showChoice();
  classifySoon();
}

/** Ask what the budget would buy for this picture now: the service's own answer, not a guess. */
async function planNow() {
  const { current } = picture;
  const budget = state.budget;
  try {
    const plan = await getPlan({
      budget,
      bytes: current?.blob.size,
      width: current?.bitmap?.width,
      height: current?.bitmap?.height,
    });
    if (budget !== state.budget) return;
    const point = points().find((p) => keyOf(p) === keyOf(plan));
    if (point) state.planned = { point, fits: plan.fits };
    showChoice();
  } catch (error) {
    if (!(error instanceof Problem)) throw error; // a refusal is told where it is asked for
  }
}

/** What the budget would buy, before anything is sent. */
function showChoice() {
  const choice = state.planned ?? choose(points(), state.budget);
  plot.update({ points: points(), budget: state.budget, choice, used: state.used, still: state.still });
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
    if (!resolution) {
      refresh().catch(() => {});
      return; // what the budget buys was just seen: the answer stands in both halves
    }
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    history.add(refusalOf(error, terms.budget));
    if (turn === asked) showError(error);
  }
  refresh().then(planNow).catch(() => {}); // follow() tells if the service is gone
}

function showOne(answer, terms) {
  clear(byId("answer-notice"));
  state.used = answer;
  const point = points().find((one) => keyOf(one) === keyOf(answer));
  if (point && !terms.resolution && terms.budget === state.budget) {
    state.planned = { point, fits: answer.budget.met !== false };
  }
  byId("answer").hidden = false;
  showAnswer(answer, terms, rampOf(answer.resolution), picture.current.name);
  showTimeline(answer);
  picture.showSeen(answer.resolution, answer.predictions[0].label);
  showChoice();
}

function showError(error) {
  byId("answer").hidden = true;
  state.used = null;
  if (error.status === 400 || error.status === 415 || error.status === 413) picture.clearSeen();
  const bar = byId("answer-bar");
  bar.hidden = false;
  bar.dataset.state = "missed";
  bar.textContent = error.title;
  const actions = [];
  if (error.smallestBudget) {
    const enough = Math.ceil(error.smallestBudget * 1.1 * 10) / 10;
    actions.push([`Allow ${ms(enough)}`, () => setBudget(roundBudget(enough))]);
  }
  if (error.status === 401) actions.push(["Enter a key", () => askForKey().then(classifyNow)]);
  if (error.retryAfter || error.status === 0) actions.push(["Try again", classifyNow]);
  tell(byId("answer-notice"), error, actions);
}

const heard = (answer) => history.add(entryOf(answer));

byId("classify").addEventListener("click", classifyNow);
byId("pin").addEventListener("change", classifyNow);
byId("refuse").addEventListener("change", classifyNow);

// ---------------------------------------------------------------- parts

const history = requestHistory(rampOf);
const plot = frontierPlot((budget) => setBudget(roundBudget(budget)));
const picture = pictureCard(
  () => {
    strip.reset();
    classifyNow();
    sides.again();
  },
  () => live.stop(),
);
const live = camera(
  (blob, canvas) => {
    picture.setFrame(blob, canvas);
    return classifyNow();
  },
  (error) => tell(byId("page-notice"), error),
);
const context = () => ({
  picture: picture.current,
  points: points(),
  used: state.used,
  rampOf,
});
const strip = sweep(context, heard);
const sides = compare(context, heard);
const weights = weightsPanel(context, refresh, heard);
loadPanel(context, heard, (error, budget) => history.add(refusalOf(error, budget)));

slider.value = positionOf(state.budget);
number.value = state.budget;
showChoice();
follow();
