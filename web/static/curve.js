import { el, say } from "./dom.js";
import { time } from "./format.js";

export const css = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// draw makes a plot as wide as its figure. x and y are more about its axes, and options more about it.
export function draw(figure, canvas, height, x, y, options) {
  const axis = { stroke: css("--dim"), grid: { stroke: css("--rule"), width: 1 }, ticks: { show: false } };
  const plot = new uPlot({
    width: 300, height, legend: { show: false }, cursor: { y: false, drag: { x: false } },
    axes: [{ ...axis, ...x }, { ...axis, size: 56, ...y }], ...options,
  }, options.series.map(() => []), canvas);
  const fit = new ResizeObserver(([{ contentRect }]) => figure.isConnected && plot.setSize({ width: Math.floor(contentRect.width), height }));
  fit.observe(figure);
  plots.set(canvas, () => {
    fit.disconnect();
    plot.destroy();
  });
  return plot;
}

// Marks of the time axis: their distances in seconds, and how uPlot prints those of such distances or more. In its first
// minutes shaper knows only seconds.
const marks = {
  incrs: [1, 5, 10, 30, 60, 300, 600, 1200, 3600],
  values: [[60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([least, print]) => [least, print, null, null, null, null, null, null, 1]),
};

const plots = new WeakMap(); // what ends the plot of a canvas

// erase ends the plots in an element that leaves the page: uPlot keeps each plot until then.
export function erase(element) {
  for (const canvas of element.querySelectorAll("[role=img]")) plots.get(canvas)();
}

// curve makes a curve with a title. Its update takes times in seconds, a value for each or null, how
// to print a value beside the title and on the axis, and a limit to draw as a line, if there is one.
export function curve(title, colour) {
  const said = el("span");
  const canvas = el("div", { role: "img" });
  const element = el("figure", {}, el("figcaption", {}, el("strong", { textContent: title }), " ", said), canvas);
  let print = String, printTick = String, plot, data = [[], [], []];

  function tell() {
    const i = plot.cursor.idx ?? data[0].findLastIndex((_, i) => data[1][i] !== null);
    const at = (i) => (i >= 0 && data[1][i] !== null ? `${print(data[1][i])} at ${time(data[0][i] * 1000, new Date())}` : "not known");
    say(said, at(i));
    const most = data[1].reduce((best, v, i) => (v !== null && (best < 0 || v > data[1][best]) ? i : best), -1);
    canvas.setAttribute("aria-label", `${title} of the last hour: last ${at(i)}, highest ${at(most)}`);
  }

  plot = draw(element, canvas, 150, { space: 70, size: 30, ...marks }, { values: (_, ticks) => ticks.map((v) => printTick(v)) }, {
    scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.05] } },
    series: [{}, { stroke: css(colour), width: 1.5, points: { show: false } }, { stroke: css("--dim"), dash: [4, 4], points: { show: false } }],
    hooks: { setCursor: [() => plot && tell()] },
  });

  return {
    element,
    update(times, values, printed, ticks, limit = null) {
      [print, printTick] = [printed, ticks];
      data = [times, values, times.map(() => limit)];
      plot.setData(data);
      tell();
    },
  };
}
