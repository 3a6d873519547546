import { el, say } from "./dom.js";
import { time } from "./format.js";

const css = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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

  const axis = { stroke: css("--dim"), grid: { stroke: css("--rule"), width: 1 }, ticks: { show: false } };
  plot = new uPlot({
    width: 300, height: 150, legend: { show: false }, cursor: { y: false, drag: { x: false } },
    scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.05] } },
    axes: [{ ...axis, space: 70, values: "{HH}:{mm}" }, { ...axis, size: 56, values: (_, ticks) => ticks.map((v) => printTick(v)) }],
    series: [{}, { stroke: css(colour), width: 1.5, points: { show: false } }, { stroke: css("--dim"), dash: [4, 4], points: { show: false } }],
    hooks: { setCursor: [() => plot && tell()] },
  }, data, canvas);

  const fit = new ResizeObserver(([{ contentRect }]) => element.isConnected && plot.setSize({ width: Math.floor(contentRect.width), height: 150 }));
  fit.observe(element);

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
