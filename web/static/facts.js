import { el } from "./dom.js";

// facts makes a list of names and texts.
export function facts() {
  const list = el("dl");
  let before = "";
  return {
    element: list,
    update(pairs) {
      const now = JSON.stringify(pairs);
      if (now === before) return;
      before = now;
      list.replaceChildren(...pairs.filter(([, text]) => text).map(([name, text]) => el("div", {}, el("dt", { textContent: name }), el("dd", { textContent: text }))));
    },
  };
}
