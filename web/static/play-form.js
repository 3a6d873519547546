import { el } from "./dom.js";

const windowed = ["fixed-window", "sliding-log", "sliding-window"];
const algorithms = {
  "leaky": "sends at a constant rate, however much arrives at once.",
  "token": "sends a burst at once, and then at the rate.",
  "gcra": "does what token does, and rounds nothing.",
  "fixed-window": "sends as much as the rate makes in a window of the clock, and the same again when the next one begins.",
  "sliding-log": "sends as much as the rate makes in a window, wherever that window begins.",
  "sliding-window": "also counts a share of the window before.",
};
const every = "all six";

// The fields of the algorithms, and what they are at first: the example of docs/algorithms.md. A field
// is a slider with its lowest and highest value, a choice, or text.
const sliders = {
  rate: ["Rate, packets/s", 1, 100, 10],
  burst: ["Burst, packets", 1, 100, 10],
  window: ["Window, ms", 100, 5000, 1000],
  queue: ["Room in the queue, packets", 1, 1000, 1000],
  arrivals: ["Arrivals, packets/s", 1, 1000, 200],
  on: ["Length of a burst, ms", 10, 5000, 200],
  off: ["Pause after it, ms", 0, 20000, 10000],
  start: ["First arrival after, ms", 0, 5000, 900],
  for: ["Simulated time, s", 1, 120, 5],
};
const kinds = { loads: "loads, one a line, as --load", csv: "a trace in CSV", jsonl: "a trace in JSON lines" };
const choices = { algorithm: [every, ...Object.keys(algorithms)], pattern: ["constant", "poisson", "bursts", "seconds"], kind: Object.keys(kinds) };

// isAllowed reports whether a field may have a value. Anybody can make up an address with another one.
export const isAllowed = (name, value) => choices[name]?.includes(value) ?? true;

export const defaults = {
  algorithms: { algorithm: every, pattern: "bursts", ...Object.fromEntries(Object.entries(sliders).map(([name, [, , , value]]) => [name, String(value)])) },
  policy: { policy: "", kind: "loads", workload: "rate=20 packets/s,pattern=poisson", for: "", seed: "1", members: "", "store-delay": "" },
};

// uses says which fields change anything with others as they are.
const uses = {
  burst: ({ algorithm }) => [every, "token", "gcra"].includes(algorithm),
  window: ({ algorithm }) => [every, ...windowed].includes(algorithm),
  on: ({ pattern }) => pattern === "bursts",
  off: ({ pattern }) => pattern === "bursts",
};

// policyOf returns the policy of the algorithms' fields. The listeners are in it so that it can be used.
function policyOf(v) {
  const names = v.algorithm === every ? Object.keys(algorithms) : [v.algorithm];
  return names.map((name, i) => [
    `[class.${name}]`, `algorithm = "${name}"`, `rate = "${v.rate} packets/s"`,
    ...(uses.burst({ algorithm: name }) ? [`burst = "${v.burst} packets"`] : []),
    ...(windowed.includes(name) ? [`window = "${v.window}ms"`] : []),
    `queue = "${v.queue} packets"`, "",
    `[listener.${name}]`, `listen = "127.0.0.1:${9901 + i}"`, `protocol = "udp"`, `upstream = "discard:"`, `class = "${name}"`, "",
  ].join("\n")).join("\n");
}

function loadOf(v) {
  const bursts = v.pattern === "bursts" ? `,on=${v.on}ms,off=${v.off}ms` : "";
  return `rate=${v.arrivals} packets/s,pattern=${v.pattern}${bursts},start=${v.start}ms`;
}

// inWords returns what the fields of the algorithms say, as fields of a policy.
export const inWords = (v) => ({ ...defaults.policy, policy: policyOf(v), workload: loadOf(v), for: `${v.for}s` });

// number returns a whole number as JSON has it, or the text if it is none that JavaScript has exactly: the simulation refuses that.
const number = (text) => (text.trim() && Number.isSafeInteger(Number(text)) ? Number(text) : text);

// request returns what to ask the simulation.
export function request(v) {
  const trace = v.kind !== "loads";
  return {
    policy: v.policy, seed: number(v.seed || defaults.policy.seed),
    load: trace ? [] : v.workload.split("\n").filter((line) => line.trim()),
    ...(trace && { trace: `trace.${v.kind}`, trace_text: v.workload }),
    ...(v.for && { for: v.for }), ...(v.members && { members: number(v.members) }), ...(v["store-delay"] && { store_delay: v["store-delay"] }),
  };
}

// command returns the same as a command line.
export function command(v) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const { load, trace } = request(v);
  return ["shaper -c shaper.toml simulate", ...load.map((l) => `--load ${quote(l)}`), ...(trace ? [`--trace ${quote(trace)}`] : []),
    ...["for", "seed", "members", "store-delay"].filter((name) => v[name]).map((name) => `--${name} ${quote(v[name])}`), "--departures departures.csv"].join(" \\\n  ");
}

// idOf returns the id of a field. It is no part of an address, to which a browser would scroll.
export const idOf = (name) => `in-${name}`;

// slider makes a slider and a number beside it, which always are the same.
function slider(name, value, change) {
  const [title, least, most] = sliders[name];
  const number = el("input", { type: "number", id: idOf(name), min: least, max: most, step: 1, value });
  const range = el("input", { type: "range", min: least, max: most, step: 1, value, "aria-label": `${title}, slider` });
  range.oninput = () => {
    number.value = range.value;
    change(name, range.value);
  };
  number.oninput = () => {
    if (!number.checkValidity() || number.value === "") return;
    range.value = number.value;
    change(name, number.value);
  };
  return el("div", { className: "slider" }, el("label", { htmlFor: idOf(name), textContent: title }), range, number);
}

function choice(name, title, all, value, change) {
  const select = el("select", { id: idOf(name) }, ...all.map(([value, text]) => el("option", { value, textContent: text })));
  select.value = value;
  select.onchange = () => change(name, select.value);
  return el("div", {}, el("label", { htmlFor: idOf(name), textContent: title }), select);
}

function text(name, title, input, value, change) {
  input.id = idOf(name);
  input.value = value;
  input.spellcheck = false;
  input.oninput = () => change(name, input.value);
  return el("div", {}, el("label", { htmlFor: idOf(name), textContent: title }), input);
}

// fillAlgorithms makes the fields of the algorithms. change is called with each that the user changes.
export function fillAlgorithms(form, v, change, toPolicy) {
  const about = el("small");
  const fields = {};
  const field = (name) => (fields[name] = slider(name, v[name], changed));
  function changed(name, value) {
    v[name] = value;
    look();
    change();
  }
  function look() {
    about.textContent = v.algorithm === every ? "Each class has another algorithm, and the same arrivals." : `${v.algorithm} ${algorithms[v.algorithm]}`;
    for (const name of Object.keys(uses)) fields[name].hidden = !uses[name](v);
  }
  const limit = choice("algorithm", "Algorithm", choices.algorithm.map((name) => [name, name]), v.algorithm, changed);
  limit.append(about);
  form.replaceChildren(
    el("fieldset", {}, el("legend", { textContent: "The limit" }), limit, ...["rate", "burst", "window", "queue"].map(field)),
    el("fieldset", {}, el("legend", { textContent: "What arrives" }), choice("pattern", "Pattern", choices.pattern.map((name) => [name, name]), v.pattern, changed),
      ...["arrivals", "on", "off", "start", "for"].map(field)),
    el("div", {}, el("button", { type: "button", textContent: "Go on with this as a policy", onclick: toPolicy })));
  look();
}

// fillPolicy makes the fields of a policy and a workload.
export function fillPolicy(form, v, change) {
  const changed = (name, value) => {
    v[name] = value;
    change();
  };
  const line = (name, title, placeholder) => text(name, title, el("input", { type: "text", placeholder }), v[name], changed);
  form.replaceChildren(
    text("policy", "Policy, as in shaper.toml", el("textarea", { rows: 20 }), v.policy, changed),
    choice("kind", "Workload", Object.entries(kinds), v.kind, changed),
    text("workload", "Its lines", el("textarea", { rows: 5 }), v.workload, changed),
    line("for", "Simulated time, as --for", "1min; a trace: until everything has left"),
    line("seed", "Start of the random generator, as --seed", defaults.policy.seed),
    line("members", "Shapers of a fleet, as --members", "no fleet"),
    line("store-delay", "How far away the store of the fleet is, as --store-delay", "1ms"));
}
