import { el, say } from "./dom.js";
import { amount, bytes, count, left, perSecond, plural, seconds, short, time } from "./format.js";
import { curve } from "./curve.js";
import { facts } from "./facts.js";

// oneClass shows a class: why it waits, its last hour, and all that is known of it.
export function oneClass(main, name) {
  const why = el("ul", { className: "why" });
  const rate = curve("Reached rate", "--line");
  const waiting = curve("Waiting items", "--warm");
  const lost = curve("Dropped and refused", "--hot");
  const all = facts();
  const there = el("div", {}, el("h2", { textContent: "Why" }), why,
    el("h2", { textContent: "The last hour" }), el("div", { className: "curves" }, rate.element, waiting.element, lost.element),
    el("h2", { textContent: "Figures" }), all.element);
  const gone = el("p", { textContent: `There is no class ${name}.`, hidden: true });
  main.append(el("h1", { textContent: `Class ${name}` }), gone, there);

  return ({ class: c, why: text, curves }, now) => {
    [there.hidden, gone.hidden] = [!c, !!c];
    if (!c) return;
    sayLines(why, text.trim().split("\n"));
    all.update(describe(c, now));
    const unit = curves.unit || c.rate.unit;
    const times = [...(curves.times ?? []), now / 1000];
    const here = c.now.unit === unit ? c.now.per_second : null;
    rate.update(times, [...(curves.sent ?? []), here], (v) => perSecond(v, unit), (v) => amount(v, unit), (c.ceil ?? c.rate).per_second);
    waiting.update(times, [...(curves.waiting ?? []), c.backlog_items], count, short);
    lost.update(times, [...(curves.lost ?? []), null], (v) => `${short(v)}/s`, short);
  };
}

// sayLines shows each line of a text as an item of a list.
function sayLines(list, lines) {
  while (list.children.length > lines.length) list.lastChild.remove();
  lines.forEach((line, i) => say(list.children[i] ?? list.appendChild(el("li")), line.trim()));
}

// shadow returns what a class in the shadow would do if it were enforced, as describe does.
const shadow = (s) => [
  ["in the shadow", "delays nothing, drops nothing"],
  ["would delay", plural(s.would_delay, "item")], ["would drop", plural(s.would_drop, "item")],
  ["would wait p50", seconds(s.would_wait_p50_seconds)], ["would wait p99", seconds(s.would_wait_p99_seconds)],
];

// describe returns what is known of a class, as pairs of a name and a text. facts leaves out those
// without a text.
function describe(c, now) {
  const losses = (kind, all) => Object.entries(all).filter(([, l]) => l.items).map(([reason, l]) => [`${kind}, ${reason}`, `${plural(l.items, "item")}, ${bytes(l.bytes)}`]);
  const counts = (kind, all = {}) => Object.entries(all).filter(([, n]) => n).map(([what, n]) => [`${kind}, ${what}`, count(n)]);
  const volume = (v) => [`${bytes(v.bytes)}`, ...["packet", "message", "connection", "token"].filter((unit) => v[`${unit}s`]).map((unit) => plural(v[`${unit}s`], unit))].join(", ");
  return [
    ["parent", c.parent], ["algorithm", c.algorithm],
    ["rate", c.rate.text + (c.set ? ", by shaper set" : "")], ["ceil", c.ceil?.text], ["burst", c.burst], ["window", c.window],
    ...(c.also ?? []).map((limit) => ["also", limit]),
    ["schedule", c.schedule && c.schedule.limit + (c.schedule.until ? ` until ${time(c.schedule.until, now)}` : "")],
    ["shared", c.shared && `${c.shared}: ${c.mode}`],
    ["per", c.per && `${c.per}: ${count(c.keys ?? 0)} of ${count(c.max_keys)} keys`],
    ["now", c.now.text], ["waiting", `${plural(c.backlog_items, "item")}, ${bytes(c.backlog_bytes)}`],
    ["oldest waits for", c.backlog_items && seconds(c.oldest)],
    ["empty in", seconds(c.time_to_drain_seconds)],
    ["wait p50", seconds(c.wait_p50_seconds)], ["wait p99", seconds(c.wait_p99_seconds)],
    ["pause of the provider", left(c.paused_until, now)],
    ["share of the rate", c.share < 1 ? `${Math.round(100 * c.share)} %` : ""],
    ...(c.shadow ? shadow(c.shadow) : []),
    [c.shadow ? "would learn" : "learned", c.learned_per_second && perSecond(c.learned_per_second, c.rate.unit)],
    ["in flight", c.in_flight && count(c.in_flight)],
    ...(c.quotas ?? []).map((q) => [`left of ${q.window}`, `${count(q.remaining)} of ${count(q.size)}${q.resets ? ` until ${time(q.resets, now)}` : ""}`]),
    ["sessions", count(c.sessions)], ["overlimits", count(c.overlimits)],
    ...Object.entries(c.sent).map(([way, v]) => [`sent ${way}`, volume(v)]),
    ...losses("dropped", c.dropped), ...losses("refused", c.refused),
    ...counts("throttled", c.throttled), ...counts("retried", c.retried), ...counts("hints", c.hinted),
    ["priority", String(c.priority)], ["weight", String(c.weight)],
  ];
}
