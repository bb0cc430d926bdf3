// Errors as sentences, where they happened.

import { h } from "./dom.js";
import { ms, percent } from "./format.js";

/** Show an error in `place`; `actions` are [label, handler] pairs. */
export function tell(place, error, actions = []) {
  place.replaceChildren(
    h(
      "div",
      { class: "notice" },
      h("strong", null, error.title ?? "Something went wrong"),
      h("span", null, sentences(error)),
      actions.length > 0 &&
        h(
          "div",
          { class: "actions" },
          actions.map(([label, onclick]) => h("button", { type: "button", onclick }, label)),
        ),
    ),
  );
}

export const clear = (place) => place.replaceChildren();

/** What went wrong and what would help. */
export function sentences(error) {
  const said = [error.message];
  if (error.smallestBudget) {
    const buys = error.expectedAccuracy
      ? `, which buys an expected accuracy of ${percent(error.expectedAccuracy)}`
      : "";
    said.push(`The smallest budget that works is ${ms(error.smallestBudget)}${buys}.`);
  }
  if (error.retryAfter) {
    said.push(`Try again in ${Math.max(1, Math.ceil(error.retryAfter / 1000))} s.`);
  }
  return said.join(" ");
}
