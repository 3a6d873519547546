import { el, say } from "./dom.js";
import { bytes, count, perSecond, seconds, short } from "./format.js";
import { css, draw, erase } from "./curve.js";
import { table } from "./table.js";

const line = (colour, more) => ({ stroke: css(colour), width: 1.5, points: { show: false }, ...more });
const inUnit = (c) => (v) => (c.limit.unit === "bytes" ? bytes(v) : `${count(v)} ${c.limit.unit}`);

// timeline makes a plot over the seconds of a simulation. Its update takes data, and how to print a value.
function timeline(figure, canvas, height, series, y) {
  let print = short;
  const plot = draw(figure, canvas, height, { space: 50, size: 30, values: (_, ticks) => ticks.map((t) => seconds(+t.toFixed(9))) }, { values: (_, ticks) => ticks.map((v) => print(v)) },
    { scales: { x: { time: false }, y }, series: [{}, ...series] });
  return {
    redraw: () => plot.redraw(),
    update(data, printed) {
      print = printed;
      plot.setData(data);
    },
  };
}

// bucket draws the tokens of a class over time.
function bucket(name, figure) {
  const canvas = el("div", { role: "img" });
  const element = el("div", {}, el("small", { textContent: "tokens in its bucket" }), canvas);
  const plot = timeline(figure, canvas, 110, [line("--line", { fill: css("--rule") })], { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.05] });
  return {
    element,
    redraw: plot.redraw,
    update(c, { level, level_step_seconds: step }, period) {
      const still = level.at(-1);
      plot.update([[...level.map((_, i) => i * step), period], [...level, still]], c.limit.unit === "bytes" ? bytes : short);
      const floor = (v) => inUnit(c)(Math.floor(v));
      canvas.setAttribute("aria-label", `${name}: tokens in its bucket: first ${floor(level[0])}, fewest ${floor(Math.min(...level))}, last ${floor(still)}`);
    },
  };
}

// stairs draws a chart of a class: what was offered and what left since the beginning, and what waits.
// A horizontal distance between the first two is a wait. Beneath it stands its bucket, if it has one.
function stairs(name) {
  const said = el("span");
  const canvas = el("div", { role: "img" });
  const element = el("figure", {}, el("figcaption", {}, el("strong", { textContent: name }), said), canvas);
  const stepped = (colour, dash) => line(colour, { dash, paths: uPlot.paths.stepped({ align: 1 }) });
  const plot = timeline(element, canvas, 220, [stepped("--warm"), stepped("--line"), stepped("--dim", [2, 3])], { range: (_, low, high) => [0, (high || 1) * 1.05] });
  let level;

  function showLevel(c, course, period) {
    if (!course.level && level) {
      erase(level.element);
      level.element.remove();
      level = undefined;
    }
    if (!course.level) return;
    if (!level) element.append((level = bucket(name, element)).element);
    level.update(c, course, period);
  }

  return {
    element,
    redraw() {
      plot.redraw();
      level?.redraw();
    },
    update(c, course, period) {
      plot.update(points(c, course, period), c.limit.unit === "bytes" ? bytes : short);
      showLevel(c, course, period);
      const text = `${c.algorithm}, ${c.limit.text}; reached ${perSecond(c.rate_reached.per_second, c.limit.unit)}; `
        + `at most ${inUnit(c)(course.busiest)} in ${seconds(course.window_seconds)}; longest wait ${seconds(c.wait_max_seconds)}`;
      say(said, text);
      canvas.setAttribute("aria-label", `${name}: ${text}`);
    },
  };
}

// points returns the times and the values of a chart: 0, each step, and from the last step to the end of
// the period what stands there.
function points(c, { step_seconds: step, offered, left, waiting }, period) {
  const times = [0, ...offered.map((_, i) => i * step), Math.min(offered.length * step, period), period];
  const ending = (values, end) => [0, ...values, end, end];
  const still = c.limit.unit === "bytes" ? c.waiting.bytes : c.waiting.items;
  return [times, ending(offered, offered.at(-1)), ending(left, left.at(-1)), ending(waiting, still)];
}

const losses = (by) => Object.entries(by).filter(([, l]) => l.items).map(([reason, l]) => `${count(l.items)} ${reason}`).join(", ") || "0";
const lost = (by) => Object.values(by).reduce((sum, l) => sum + l.items, 0);

// columns are those of shaper simulate.
const columns = [
  { name: "Class", text: (c) => c.name, depth: (c) => c.depth },
  { name: "Limit", text: (c) => c.limit.text, by: (c) => c.limit.per_second },
  ...[["Offered", "offered"], ["Left", "left"]].map(([name, key]) => ({ name, text: (c) => count(c[key].items), by: (c) => c[key].items })),
  ...[["Dropped", "dropped"], ["Refused", "refused"]].map(([name, key]) => ({ name, text: (c) => losses(c[key]), by: (c) => lost(c[key]) })),
  { name: "Waiting", text: (c) => count(c.waiting.items), by: (c) => c.waiting.items },
  ...["p50", "p99", "max"].map((name) => ({ name, text: (c) => seconds(c[`wait_${name}_seconds`]), by: (c) => c[`wait_${name}_seconds`] })),
  { name: "Reached", text: (c) => perSecond(c.rate_reached.per_second, c.limit.unit), by: (c) => c.rate_reached.per_second },
  { name: "Used", text: (c) => `${(100 * c.utilisation).toFixed(1)} %`, by: (c) => c.utilisation },
  { name: "Most", text: (c) => count(c.most_waiting.items), by: (c) => c.most_waiting.items },
];

// inTree returns the classes with each under its parent, and how deep it is.
function inTree(classes, parent = undefined, depth = 0) {
  return classes.filter((c) => c.parent === parent).flatMap((c) => [{ ...c, depth }, ...inTree(classes, c.name, depth + 1)]);
}

// result shows answers: a chart of each class that was offered something, a table of all, and notes.
export function result(charts, figures, notes) {
  const all = table("Classes", columns, (c) => c.name);
  figures.append(all.element);
  let drawn = new Map(); // charts, by the names of classes

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((chart) => chart.redraw()));
  return ({ report, courses }) => {
    const before = drawn;
    drawn = new Map();
    report.classes.forEach((c, i) => {
      if (!courses[i].offered) return;
      const chart = before.get(c.name) ?? stairs(c.name);
      drawn.set(c.name, chart);
      chart.update(c, courses[i], report.seconds);
    });
    for (const [name, chart] of before) if (!drawn.has(name)) erase(chart.element);
    const elements = [...drawn.values()].map((chart) => chart.element);
    if (elements.length !== charts.children.length || elements.some((e, i) => e !== charts.children[i])) charts.replaceChildren(...elements);
    all.update(inTree(report.classes), new Date());
    notes.replaceChildren(...report.notes.map((note) => el("li", { textContent: note })));
    notes.hidden = report.notes.length === 0;
  };
}
