// The same request from a shell, from Python, from JavaScript.

import { classifyPath } from "./api.js";
import { h } from "../basics/dom.js";

const shell = (name) => `'${name.replaceAll("'", "'\\''")}'`;

const LANGUAGES = [
  ["curl", (terms, file) => `curl --data-binary @${/^[\w.-]+$/.test(file) ? file : shell(file)} \\\n  '${location.origin}${classifyPath(terms)}'`],
  ["Python", python],
  ["JavaScript", (terms) => `const answer = await fetch("${location.origin}${classifyPath(terms)}", {\n  method: "POST", body: file,\n}).then((response) => response.json());`],
];

function python(terms, file) {
  const named = [["budget_ms", terms.budget], ["resolution", terms.resolution], ["on_miss", terms.refuse ? '"refuse"' : null]]
    .filter(([, value]) => value)
    .map(([name, value]) => `, ${name}=${value}`);
  return `from san_client import Client\n\nclient = Client("${location.origin}")\nanswer = client.classify(${JSON.stringify(file)}${named.join("")})`;
}

let chosen = "curl";

export function snippets(terms, file = "photo.jpg") {
  const code = h("code", null);
  const copy = h("button", { type: "button", class: "plain" }, "Copy");
  const tabs = LANGUAGES.map(([name]) => h("button", { type: "button", class: "plain", role: "tab" }, name));
  const show = () => {
    code.textContent = LANGUAGES.find(([name]) => name === chosen)[1](terms, file);
    copy.textContent = "Copy";
    for (const tab of tabs) tab.setAttribute("aria-selected", String(tab.textContent === chosen));
  };
  for (const tab of tabs) {
    tab.addEventListener("click", () => {
      chosen = tab.textContent;
      show();
    });
  }
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Select it instead";
    }
  });
  show();
  return h(
    "div",
    { class: "command" },
    h("div", { class: "command-head" }, h("div", { class: "tabs", role: "tablist", "aria-label": "The same request as code" }, tabs), copy),
    h("pre", { class: "scroll", tabindex: "0", "aria-label": "The request as code" }, code),
  );
}
