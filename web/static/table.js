import { el, say } from "./dom.js";

// table makes a table whose rows are updated in place, so that the focus and the place on the page
// stay. A column is
//   name    its head
//   text    what a row shows there
//   by      what to sort by; none: the column is text
//   href    where the text leads
//   named   the text is a name, which may be long: it breaks anywhere
//   note    a second line beneath the text; with warns, something that somebody should know
//   depth   of a row in its tree
//   load    from 0 to 1: how long a bar is behind the text
//   spare   a narrow screen does without it
// keyOf names a row. A click on a head sorts: the largest figures first, texts from A to Z; the
// second click turns that round, and the third restores the order given.
export function table(caption, columns, keyOf) {
  const body = el("tbody");
  const lines = new Map(); // by key
  let rows = [], now = new Date(), sorted = null, sign = 1;

  const heads = columns.map((column) => {
    const button = el("button", { type: "button", textContent: column.name });
    const head = el("th", { scope: "col", className: kind(column) }, button);
    button.onclick = () => {
      if (sorted !== column) [sorted, sign] = [column, 1];
      else if (sign === 1) sign = -1;
      else sorted = null;
      heads.forEach((h, i) => h.setAttribute("aria-sort", columns[i] !== sorted ? "none" : (sign === 1) === !!column.by ? "descending" : "ascending"));
      draw();
    };
    return head;
  });

  function compare(a, b) {
    const { by, text } = sorted;
    return sign * (by ? by(b, now) - by(a, now) : text(a, now).localeCompare(text(b, now)));
  }

  function draw() {
    const focused = document.activeElement; // a row that moves loses the focus
    const shown = sorted ? rows.toSorted(compare) : rows;
    const keys = shown.map((row) => String(keyOf(row)));
    const stay = new Set(keys);
    for (const [key, line] of lines) {
      if (stay.has(key)) continue;
      line.element.remove(); // first, so that those behind it need not move
      lines.delete(key);
    }
    shown.forEach((row, i) => {
      if (!lines.has(keys[i])) lines.set(keys[i], newLine(columns));
      const line = lines.get(keys[i]);
      line.update(row, now, sorted);
      if (body.children[i] !== line.element) body.insertBefore(line.element, body.children[i] ?? null);
    });
    if (body.contains(focused) && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }

  const element = el("div", { className: "wide", role: "region", tabIndex: 0, "aria-label": caption },
    el("table", {}, el("caption", { textContent: caption }), el("thead", {}, el("tr", {}, ...heads)), body));
  return {
    element,
    update(next, at) {
      [rows, now] = [next, at];
      draw();
    },
  };
}

const kind = (column) => [column.by && "figure", column.spare && "spare", (column.href || column.named) && "name"].filter(Boolean).join(" ");

// newLine makes a row of a table. Its first cell is its head.
function newLine(columns) {
  const cells = columns.map((column, i) => {
    const text = el(column.href ? "a" : "span");
    const note = el("small", { className: column.warns ? "warns" : "" });
    const cell = el(i ? "td" : "th", { className: kind(column) }, text, ...(column.note ? [note] : []));
    if (!i) cell.scope = "row";
    return { cell, text, note };
  });
  return {
    element: el("tr", {}, ...cells.map((c) => c.cell)),
    update(row, now, sorted) {
      columns.forEach((column, i) => {
        const { cell, text, note } = cells[i];
        say(text, column.text(row, now));
        if (column.href && text.getAttribute("href") !== column.href(row)) text.href = column.href(row);
        if (column.note) say(note, column.note(row, now));
        if (column.depth) cell.style.setProperty("--depth", sorted ? 0 : column.depth(row));
        if (column.load) cell.style.setProperty("--load", column.load(row));
      });
    },
  };
}
