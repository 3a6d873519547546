import { el, say } from "./dom.js";
import { bytes, count, hold, left, seconds } from "./format.js";
import { table } from "./table.js";

const endless = (s) => s ?? Infinity;
const waits = (c) => c.items > 0 || !!c.waits_for; // sessions may wait while no item does

const columns = [
  {
    name: "Class", text: (c) => c.name, href: (c) => `#class/${c.name}`, depth: (c) => c.depth,
    note: (c, now) => [c.shadow && "in the shadow: delays nothing", c.waits_for && `waits for ${hold(c.waits_for, c.name, now)}`].filter(Boolean).join("; "), warns: true,
  },
  { name: "Rate", text: (c) => (c.set ? "*" : "") + c.rate, note: (c) => (c.ceil ? `up to ${c.ceil}` : ""), spare: true },
  { name: "Now", text: (c) => c.now, by: (c) => c.load, load: (c) => Math.min(c.load, 1), spare: true },
  { name: "Waiting", text: (c) => count(c.items), by: (c) => c.items, note: (c) => (c.items ? bytes(c.bytes) : "") },
  { name: "Oldest", text: (c) => (c.items ? seconds(c.oldest) : "–"), by: (c) => c.oldest },
  { name: "p50", text: (c) => seconds(c.p50), by: (c) => c.p50, spare: true },
  { name: "p99", text: (c) => seconds(c.p99), by: (c) => c.p99, spare: true },
  { name: "Empty in", text: (c) => seconds(c.drain), by: (c) => endless(c.drain) },
  { name: "Dropped", text: (c) => count(c.dropped), by: (c) => c.dropped, spare: true },
  { name: "Refused", text: (c) => count(c.refused), by: (c) => c.refused, spare: true },
  {
    name: "Too fast", text: (c) => count(c.throttled), by: (c) => c.throttled, spare: true,
    note: (c, now) => (left(c.paused_until, now) ? `pauses ${left(c.paused_until, now)}` : ""), warns: true,
  },
];

// classes shows the tree of classes.
export function classes(main) {
  const filter = el("input", { type: "search", id: "filter" });
  const waiting = el("input", { type: "checkbox" });
  const tally = el("p");
  const all = table("Classes", columns, (c) => c.name);
  let shown = { classes: [], total: 0 }, at = new Date();

  const draw = () => {
    const word = filter.value.toLowerCase();
    const some = inTreeOrder(shown.classes).filter((c) => c.name.toLowerCase().includes(word) && (!waiting.checked || waits(c)));
    say(tally, `${count(some.length)} of ${count(shown.total)} classes; something waits in ${count(shown.classes.filter(waits).length)}. The figures of a class include those of all beneath it.`
      + (shown.classes.length < shown.total ? ` Only the ${count(shown.classes.length)} in which most waits are here.` : "")
      + (some.some((c) => c.set) ? " * by shaper set." : ""));
    all.update(some, at);
  };
  filter.oninput = waiting.onchange = draw;

  main.append(el("h1", { textContent: "Classes" }),
    el("form", { role: "search", onsubmit: () => false }, el("label", {}, "Name ", filter), el("label", {}, waiting, " only those in which something waits")),
    all.element, tally);
  return (next, now) => {
    [shown, at] = [next, now];
    draw();
  };
}

// inTreeOrder returns each class after its parent, with its depth. A class whose parent is not
// there is at the top.
function inTreeOrder(all) {
  const names = new Set(all.map((c) => c.name));
  const under = Map.groupBy(all, (c) => (names.has(c.parent) ? c.parent : ""));
  const walk = (name, depth) => (under.get(name) ?? []).flatMap((c) => [{ ...c, depth }, ...walk(c.name, depth + 1)]);
  return walk("", 0);
}
