// Elements from data. Text is always text: nothing here can turn a string into markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => {
  const node = document.getElementById(id);
  if (!node) throw new Error(`The page has no #${id}.`);
  return node;
};

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "vars") {
      // Through the CSSOM: a style attribute would be refused by the page's security policy.
      for (const [key, content] of Object.entries(value)) node.style.setProperty(key, content);
    } else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element: `h("p", { class: "reason" }, "text")`. */
export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** Call `draw(width, height)` now and whenever the element's size changes. */
export function onSize(node, draw) {
  new ResizeObserver(() => {
    if (node.clientWidth > 0) draw(node.clientWidth, node.clientHeight);
  }).observe(node);
}

/** At most one call per frame, with whatever is current then. */
export function perFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}
