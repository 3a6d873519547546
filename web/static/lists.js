import { el, say } from "./dom.js";
import { bytes, count, plural, seconds, time } from "./format.js";
import { facts } from "./facts.js";
import { table } from "./table.js";

const text = (name, of, more) => ({ name, text: (row, now) => of(row, now) || "–", ...more });
const figure = (name, of, print = count, more) => ({ name, text: (row) => print(of(row) ?? 0), by: (row) => of(row) ?? Infinity, ...more });
const spare = { spare: true }, named = { named: true };

// list shows a table. If there are more rows than the daemon sends, it says how many.
function list(title, columns, keyOf, none, order = "") {
  return (main) => {
    const rows = table(title, columns, keyOf);
    const tally = el("p");
    main.append(el("h1", { textContent: title }), rows.element, tally);
    return (all, now) => {
      rows.update(all.rows, now);
      rows.element.hidden = all.total === 0;
      say(tally, all.total === 0 ? none : all.rows.length < all.total ? `${count(all.rows.length)} of ${count(all.total)}${order}.` : `${count(all.total)} in all.`);
    };
  };
}

export const sessions = list("Sessions", [
  text("Session", (s) => String(s.id)),
  text("Listener", (s) => s.listener, { ...named, spare: true }),
  text("Client", (s) => s.client),
  text("Upstream", (s) => s.destination || s.upstream, spare),
  text("Class", (s) => s.class, { href: (s) => `#class/${s.class}` }),
  figure("Waiting", (s) => s.waiting_bytes, bytes),
  figure("Up", (s) => s.bytes_upstream, bytes, spare),
  figure("Down", (s) => s.bytes_downstream, bytes, spare),
  text("Since", (s, now) => time(s.started, now), spare),
], (s) => s.id, "No session is open.", ": those in which most waits, then the latest");

export const upstreams = list("Upstreams", [
  text("Upstream", (u) => u.upstream, { ...named, note: (u) => `of ${u.listener}` }),
  text("Address", (u) => u.address, spare),
  text("State", (u) => u.state, { note: (u) => (u.state === "up" ? "" : u.error ?? ""), warns: true }),
  text("Since", (u, now) => u.since && time(u.since, now), spare),
  figure("Sessions", (u) => u.sessions),
  figure("In flight", (u) => u.in_flight, count, spare),
  figure("Failures", (u) => u.failures),
], (u) => [u.listener, u.number, u.address].join(), "No listener has an upstream.");

const shared = [
  text("Class", (c) => c.class, { href: (c) => `#class/${c.class}` }),
  text("Limit", (c) => c.limit, spare),
  text("Mode", (c) => c.mode, { note: (c) => c.error ?? "", warns: true }),
  figure("Members", (c) => c.members, count, spare),
  figure("Share", (c) => c.share, (v) => `${(100 * v).toFixed(1)} %`),
  figure("Leased", (c) => c.leased, count, spare),
  figure("Used", (c) => c.used, count, spare),
  figure("Expired", (c) => c.expired, count, spare),
  figure("Returned", (c) => c.returned, count, spare),
  figure("Away", (c) => c.fallback_seconds, seconds, spare),
];

const shapers = [
  text("Member", (s) => s.name, named),
  figure("Age", (s) => s.age_seconds, seconds, spare),
  figure("Seen", (s) => s.seen_seconds, (v) => `${seconds(v)} ago`),
  figure("Budgets", (s) => s.budgets, count, spare),
  figure("Share", (s) => s.share, (v) => `${(100 * v).toFixed(1)} %`),
  text("State", (s) => s.state),
];

// fleet shows each store, the classes that have their budget there, and who shares it.
export function fleet(main) {
  const none = el("p", { textContent: "No class is shared: this process has all budgets." });
  const stores = new Map();
  main.append(el("h1", { textContent: "Fleet" }), none);
  return ({ rows }, now) => {
    none.hidden = rows.length > 0;
    for (const [name, { element }] of stores) {
      if (rows.some((f) => f.name === name)) continue;
      element.remove(); // a reload has removed the fleet
      stores.delete(name);
    }
    for (const f of rows) {
      if (!stores.has(f.name)) {
        const one = { facts: facts(), classes: table(`Classes of ${f.name}`, shared, (c) => c.class + c.limit), shapers: table(`Members of ${f.name}`, shapers, (s) => s.name) };
        one.element = el("section", {}, el("h2", { textContent: f.name }), one.facts.element, one.classes.element, one.shapers.element);
        stores.set(f.name, one);
        main.append(one.element);
      }
      const one = stores.get(f.name);
      one.facts.update([
        ["store", f.addresses.join(", ")], ["state", f.up ? "up" : "away"], ["members", count(f.members)],
        ["calls", `${count(f.calls)}, ${count(f.failures)} failed`], ["a call takes", seconds(f.call_seconds)],
        ["the clock is wrong by at most", seconds(f.clock_error_seconds)],
      ]);
      one.classes.update(f.classes, now);
      one.shapers.update(f.shapers ?? [], now);
      one.shapers.element.hidden = !f.shapers; // the store is away
    }
  };
}

const both = (c) => Object.values(c.sent).reduce((sum, v) => sum + v.bytes, 0);
const items = (losses) => Object.values(losses).reduce((sum, l) => sum + l.items, 0);

// keeping says whether the kernel is as the policy says, and what that took.
function keeping({ kernel_kept: kept, kernel }) {
  if (!kept) return "The policy has no device: the kernel shapes nothing.";
  return (kept.error ? `The kernel differs from the policy: ${kept.error}.` : "The kernel is as the policy says.")
    + (kept.corrected ? ` shaper has put ${plural(kept.corrected, "object")} right since the start.` : "")
    + (kernel || kept.error ? "" : " No device of the policy is there.");
}

// system shows the process, its listeners, and what the kernel counts.
export function system(main) {
  const all = facts();
  const listeners = table("Listeners", [
    text("Listener", (l) => l.name, { ...named, note: (l) => l.addresses.join(", ") }),
    text("Protocol", (l) => l.protocol),
    figure("Open", (l) => l.open),
    figure("Sent", both, bytes),
    figure("Accept errors", (l) => l.accept_errors, count, spare),
  ], (l) => l.name);
  const kernel = table("Kernel", [
    text("Class", (c) => c.name, { href: (c) => `#class/${c.name}` }),
    text("Rate", (c) => c.rate.text),
    figure("Sent", both, bytes),
    figure("Backlog", (c) => c.backlog_bytes, bytes),
    figure("Dropped", (c) => items(c.dropped)),
    figure("Overlimits", (c) => c.overlimits, count, spare),
  ], (c) => c.name);
  const kept = el("p");
  main.append(el("h1", { textContent: "System" }), all.element, el("h2", { textContent: "Listeners" }), listeners.element,
    el("h2", { textContent: "Kernel" }), kept, kernel.element);
  return (s, now) => {
    all.update([
      ["version", s.version], ["pid", String(s.pid)], ["state", s.state], ["started", time(s.started, now)],
      ["policy", `${s.policy} ${s.policy_hash}`], ["last reload", `${s.last_reload.ok ? "succeeded" : "failed; shaper status says why"}, ${time(s.last_reload.time, now)}`],
      ["rolls back at", s.rollback_at && time(s.rollback_at, now)],
      ...s.sets.map((set) => ["set", `${set.class}: ${Object.entries(set.values).map((pair) => pair.join(" ")).join(", ")}${set.until ? ` until ${time(set.until, now)}` : ""}`]),
      ["items leave late by", s.pacers.departures ? `${seconds(s.pacers.late_p50_seconds)} (p50), ${seconds(s.pacers.late_p99_seconds)} (p99)` : ""],
      ["state file", s.state_file.path && `${s.state_file.path}, ${bytes(s.state_file.bytes)}, written ${time(s.state_file.written, now)}`],
      ["state file fails", s.state_file.error],
    ]);
    listeners.update(s.listeners, now);
    say(kept, keeping(s));
    kept.className = s.kernel_kept?.error ? "warns" : "";
    kernel.element.hidden = !s.kernel;
    kernel.update(s.kernel ?? [], now);
  };
}

const value = (v, change) => v || (change.key ? "…" : "");
const said = (c) => `${c.op} ${c.what} ${c.name ?? ""} ${c.key ?? ""}`.trim() + (c.op === "~" ? `: ${value(c.old, c)} → ${value(c.new, c)}` : "");
const changed = (r) => [...r.changes.map(said), ...(r.more ? [`and ${count(r.more)} more`] : []), ...(r.error ? [r.error] : [])].join("\n");

export const changes = list("Changes", [
  text("Change", (r) => r.what, { note: changed }),
  text("When", (r, now) => time(r.time, now) + (r.until ? `, until ${time(r.until, now)}` : "")),
  text("Who", (r) => r.by),
  text("Policy before", (r) => r.before, spare),
  text("Policy after", (r) => r.after, spare),
], (r) => r.number, "Nothing has changed.");
