import { el, say } from "./dom.js";
import { engine } from "./play-engine.js";
import { command, defaults, fillAlgorithms, fillPolicy, idOf, inWords, isAllowed, request } from "./play-form.js";
import { result } from "./play-result.js";

const at = (id) => document.getElementById(id);
const form = document.querySelector("form");
const title = document.querySelector("h1");
const show = result(at("charts"), at("figures"), at("notes"));

// The part of the address behind # holds what the user has entered, as far as it is not what it was
// at first: #rate=20&burst=5, or #policy=...&workload=....
let values, page, words, departures = "";

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  page = given.has("policy") ? "policy" : "algorithms";
  values = { ...defaults[page] };
  for (const name of Object.keys(values)) {
    if (given.has(name) && isAllowed(name, given.get(name))) values[name] = given.get(name);
  }
  if (page === "policy" && !values.policy) values = inWords(defaults.algorithms);
}

function write() {
  const differing = Object.entries(values).filter(([name, value]) => name === "policy" || value !== defaults[page][name]);
  history.replaceState(null, "", `#${new URLSearchParams(differing)}`);
}

// open shows the fields that the address asks for.
function open() {
  read();
  const change = () => {
    write();
    compute();
  };
  say(title, page === "policy" ? "A policy" : "The algorithms, side by side");
  document.title = `${title.textContent} – shaper`;
  document.querySelector(".play").classList.toggle("wide-form", page === "policy");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === (page === "policy" ? "#policy" : "#")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page === "policy") fillPolicy(form, values, change);
  else fillAlgorithms(form, values, change, () => (location.hash = new URLSearchParams(inWords(values))));
  compute();
}

function compute() {
  words = page === "policy" ? values : inWords(values);
  say(at("command"), command(words));
  machine.ask(request(words));
}

// working says whether a simulation takes long, so that a person may stop it.
function working(long) {
  at("stop").hidden = !long;
  document.querySelector(".play section").setAttribute("aria-busy", long);
  if (long) say(at("status"), "computing");
}

const machine = engine((answer, said) => {
  working(false);
  const problems = answer ? answer.problems ?? [] : [{ text: said }];
  complain(problems);
  at("save-departures").disabled = problems.length > 0;
  if (problems.length === 0) {
    departures = answer.departures;
    show(answer);
    say(at("status"), `policy ${answer.report.policy_hash}, computed in ${Math.max(1, Math.round(said))} ms`);
  } else say(at("status"), answer ? "nothing was computed; below stands what was before" : said);
}, () => working(true));

// complain lists what is wrong. What has a place in a text leads there.
function complain(problems) {
  const list = at("problems");
  list.replaceChildren(...problems.map(({ text, file, line, column }) => {
    const field = page === "policy" && line && at(idOf(file === "shaper.toml" ? "policy" : "workload"));
    return el("li", {}, field ? el("button", { type: "button", textContent: text, onclick: () => goTo(field, line, column) }) : text);
  }));
  list.hidden = problems.length === 0;
}

// goTo selects the rest of a line, from a column in bytes.
function goTo(field, line, column) {
  const lines = field.value.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, l) => sum + l.length + 1, 0);
  const bytes = new TextEncoder().encode(lines[line - 1] ?? "").slice(0, column - 1);
  const start = before + new TextDecoder().decode(bytes).length;
  field.focus();
  field.setSelectionRange(start, before + (lines[line - 1] ?? "").length);
}

function save(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text])), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

at("stop").onclick = () => machine.stop();
at("save-policy").onclick = () => save("shaper.toml", words.policy);
at("save-departures").onclick = () => save("departures.csv", departures);
form.onsubmit = (e) => e.preventDefault();
addEventListener("hashchange", open);
open();
