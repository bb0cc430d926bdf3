// One tooltip for all charts. It repeats what tables and texts on the page say as well.

import { byId, h } from "./dom.js";

const box = byId("tooltip");

/** Show lines (the first is the heading) beside a point of the page. */
export function showTooltip(pageX, pageY, lines) {
  const [heading, ...rest] = lines;
  box.replaceChildren(h("strong", null, heading), ...rest.map((line) => h("div", null, line)));
  box.hidden = false;
  const width = box.offsetWidth;
  const height = box.offsetHeight;
  const right = window.scrollX + document.documentElement.clientWidth;
  const left = pageX + 16 + width > right - 8 ? pageX - width - 16 : pageX + 16;
  box.style.left = `${Math.max(window.scrollX + 8, left)}px`;
  box.style.top = `${Math.max(window.scrollY + 8, pageY - height / 2)}px`;
}

export function hideTooltip() {
  box.hidden = true;
}

/** Of `items` with x and y, the one nearest to (x, y) and not farther than `reach`. */
export function nearest(items, x, y, reach) {
  let best = null;
  let distance = reach;
  for (const item of items) {
    const d = Math.hypot(item.x - x, item.y - y);
    if (d <= distance) {
      best = item;
      distance = d;
    }
  }
  return best;
}

/** Where an event is, in the pixels of an SVG drawn at its own size. */
export function within(svg, event) {
  const box = svg.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}
