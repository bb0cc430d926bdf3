// The weight cache: what is ready, what making it took, and what a cold start costs.

import { classify, evict, warm } from "../calls/api.js";
import { sameWeights, servedSizes } from "../calls/choice.js";
import { byId, h } from "../basics/dom.js";
import { ago, count, megabytes, ms, percent, pointName } from "../basics/format.js";
import { clear, tell } from "../basics/notice.js";
import { stagesOf, stageVars } from "./timeline.js";

const PATIENCE_MS = 30_000;
const POLL_MS = 150;

/**
 * Wire the panel. `context()` gives {picture, points, used, rampOf}; `refresh()` asks the service
 * again and resolves to its answer; `onAnswer(answer)` hears of every request.
 */
export function weightsPanel(context, refresh, onAnswer) {
  const notice = byId("weights-notice");
  const coldButton = byId("cold-run");

  function show(catalogue) {
    const { cache } = catalogue;
    const share = cache.bytes / cache.capacity_bytes;
    const asked = cache.hits + cache.misses;
    const meter = byId("weights-meter");
    meter.firstElementChild.style.setProperty("--share", `${100 * share}%`);
    meter.setAttribute("aria-label", `Weight cache ${percent(share, 0)} full`);
    byId("weights-summary").textContent =
      `${cache.networks.length} networks, ${megabytes(cache.bytes)} of ${megabytes(cache.capacity_bytes)}` +
      (asked > 0 ? `, ${percent(cache.hits / asked)} of ${count(asked)} lookups hit` : "");
    const cached = [...cache.networks].sort((a, b) => a.resolution - b.resolution);
    const cold = servedSizes(catalogue.operating_points).filter(
      (point) => !cached.some((network) => network.resolution === point.resolution),
    );
    const head = ["Main network", "Memory", "Generated", "Took", "Hits", "Action"];
    byId("weights-table").replaceChildren(
      h("thead", null, h("tr", null, head.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", null, cached.map(cachedRow), cold.map(coldRow)),
    );
  }

  function name(point) {
    const { rampOf } = context();
    const swatch = h("span", { class: "swatch ramp", "aria-hidden": "true", vars: { "--t": rampOf(point.resolution) } });
    return h("td", null, swatch, pointName(point));
  }

  function cachedRow(network) {
    return h(
      "tr",
      { "data-resolution": network.resolution, "data-state": "cached" },
      name(network),
      h("td", null, megabytes(network.memory_bytes)),
      h("td", null, ago(network.age_s)),
      h("td", null, network.generation_ms === null ? "at start" : ms(network.generation_ms)),
      h("td", null, count(network.hits)),
      h("td", null, act("Evict", network, () => evict(network))),
    );
  }

  function coldRow(point) {
    return h(
      "tr",
      { class: "cold-row", "data-resolution": point.resolution, "data-state": "cold" },
      name(point),
      h("td", null, "–"),
      h("td", null, "not cached"),
      h("td", null, point.cold_ms > 0 ? `≈ ${ms(point.cold_ms)}` : "–"),
      h("td", null, "–"),
      h("td", null, act("Warm", point, () => warm(point), (now) => isCached(now, point))),
    );
  }

  function act(word, point, work, done = () => true) {
    const button = h("button", { type: "button", class: "plain", "aria-label": `${word} ${pointName(point)}` }, word);
    button.addEventListener("click", async () => {
      button.disabled = true;
      clear(notice);
      try {
        await work();
        await until(done);
      } catch (error) {
        tell(notice, error);
        await refresh().catch(() => {});
      }
    });
    return button;
  }

  async function until(done) {
    const end = performance.now() + PATIENCE_MS;
    for (;;) {
      const now = await refresh();
      if (done(now)) return now;
      if (performance.now() > end) {
        throw Object.assign(new Error("The weights are still not ready; the service's log may say why."), { title: "This takes long" });
      }
      await new Promise((wake) => setTimeout(wake, POLL_MS));
    }
  }

  async function coldAgainstCached() {
    const { picture, points, used } = context();
    clear(notice);
    const all = servedSizes(points);
    const point = all.find((p) => p.resolution === used?.resolution) ?? all.at(-1);
    if (!picture || !point) {
      tell(notice, { title: "No picture yet", message: "Choose a picture first; it is classified once cold and once cached." });
      return;
    }
    coldButton.disabled = true;
    try {
      if (isCached(await refresh(), point)) await evict(point);
      const terms = { resolution: point.resolution, mode: point.mode };
      const cold = await classify(picture.blob, terms);
      onAnswer(cold);
      // The weights may still be on their way if another engine stood in for them.
      const catalogue = await until((now) => isCached(now, point));
      const made = catalogue.cache.networks.find((network) => sameWeights(network, point));
      const cached = await classify(picture.blob, terms);
      onAnswer(cached);
      showVersus(made, cold, cached);
      await refresh();
    } catch (error) {
      tell(notice, error);
    } finally {
      coldButton.disabled = false;
    }
  }
  coldButton.addEventListener("click", coldAgainstCached);

  return { show };
}

/** Whether its weights are there, in whichever arithmetic the service takes. */
function isCached(catalogue, point) {
  return catalogue.cache.networks.some((network) => sameWeights(network, point));
}

function showVersus(made, cold, cached) {
  const longest = Math.max(cold.timing_ms.total, cached.timing_ms.total);
  const line = (word, answer) => {
    const share = `${(100 * answer.timing_ms.total) / longest}%`;
    const stages = stagesOf(answer.timing_ms).filter(({ took }) => took > 0);
    return [
      h("b", null, word),
      h(
        "div",
        { "aria-hidden": "true" },
        h("div", { class: "line", vars: { "--share": share } }, stages.map(({ name, took }) => h("i", { vars: stageVars(name, took) }))),
      ),
      h("span", null, ms(answer.timing_ms.total)),
    ];
  };
  const factor = cold.timing_ms.total / Math.max(0.01, cached.timing_ms.total);
  byId("cold").replaceChildren(
    h(
      "div",
      { class: "versus" },
      line("Cold", cold),
      line("Cached", cached),
      h(
        "p",
        { class: "conclusion" },
        `${pointName(made)}: generating the weights took ${ms(made.generation_ms)}. The first request after the eviction ` +
          `(weights ${cold.weights}) took ${factor >= 1.1 ? `${factor.toFixed(1)} times as long as` : "about as long as"} the next (weights ${cached.weights}).`,
      ),
    ),
  );
}
