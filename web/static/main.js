import { say } from "./dom.js";
import { plural, seconds, time } from "./format.js";
import { classes } from "./classes.js";
import { oneClass } from "./class.js";
import { erase } from "./curve.js";
import { sessions, upstreams, fleet, system, changes } from "./lists.js";

// A view fills main, and returns what updates it with each event. The part of the address behind #
// names the view, as the path of the stream does: #class/otp shows events/class/otp.
const views = { classes, class: oneClass, sessions, upstreams, fleet, system, changes };

const main = document.querySelector("main");
const connection = document.querySelector("#connection");
const summary = document.querySelector("#summary");
let stream, update, again, latest; // latest is when the figures of the view were made

// An event comes every ten seconds at least. A connection that the network has forgotten brings none, and does not end.
const silence = 20_000;

const path = () => (Object.hasOwn(views, location.hash.slice(1).split("/")[0]) ? location.hash.slice(1) : "classes");

// show opens the view that the address names.
function show() {
  const [name, of] = path().split("/");
  erase(main);
  main.replaceChildren();
  latest = undefined;
  update = views[name](main, of);
  document.title = `${main.querySelector("h1").textContent} – shaper`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}` || (link.hash === "#classes" && name === "class")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  listen();
}

// listen opens the stream of the view, unless nobody can see the page.
function listen() {
  stream?.close();
  clearTimeout(again);
  if (document.hidden) return;
  stream = new EventSource(`events/${path()}`);
  stream.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    const now = new Date(event.now);
    describe(event.summary, now);
    update(event.view, now);
    latest = now;
    say(connection, "live"); // only now: what cannot be drawn leaves the figures old
    listenAgainIn(silence);
  };
  stream.onerror = () => {
    old();
    if (stream.readyState === EventSource.CLOSED) listenAgainIn(5000); // it does not try again by itself
  };
  listenAgainIn(silence);
}

// listenAgainIn opens the stream anew after some milliseconds, unless an event comes before.
function listenAgainIn(ms) {
  clearTimeout(again);
  again = setTimeout(() => {
    old();
    listen();
  }, ms);
}

// old says that the figures of the view are old, if there are any.
function old() {
  say(connection, `no connection${latest ? `; the figures are old since ${time(latest, new Date())}` : ""}`);
}

function describe(s, now) {
  say(summary, `${s.version}, ${s.state}, up ${seconds(Math.floor((now - new Date(s.started)) / 1000))}, policy ${s.policy_hash}, `
    + `${plural(s.sessions, "session")}${s.reload_ok ? "" : ", the last reload has failed"}`);
}

addEventListener("hashchange", () => {
  show();
  const title = main.querySelector("h1");
  title.tabIndex = -1;
  title.focus();
});
document.addEventListener("visibilitychange", listen);
document.addEventListener("keydown", (e) => {
  const filter = document.querySelector("#filter");
  if (e.key === "/" && filter && e.target.tagName !== "INPUT") {
    e.preventDefault();
    filter.focus();
  }
});
show();
