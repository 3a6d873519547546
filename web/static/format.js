// Figures as the command line prints them.

const prefixes = ["", "k", "M", "G", "T", "P"];
const binary = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function scaled(n, step, units, gap = " ") {
  let i = 0;
  for (; Math.abs(n) >= step && i < units.length - 1; i++) n /= step;
  return `${+n.toPrecision(3)}${gap}${units[i]}`.trim();
}

export const bytes = (n) => scaled(n, 1024, binary);
export const short = (n) => scaled(n, 1000, prefixes, "");
export const count = (n) => n.toLocaleString("en");
export const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

// perSecond prints a rate, and amount only its number. As in a policy, those of bytes are in bits.
export const perSecond = (n, unit) => (unit === "bytes" ? `${amount(n, unit)}/s` : `${amount(n, unit)} ${unit}/s`);
export const amount = (n, unit) => (unit === "bytes" ? `${short(8 * n)}bit` : short(n));

// seconds prints a duration; null is for ever.
export function seconds(s) {
  if (s === null) return "never";
  if (s === 0) return "0";
  if (s < 1) return s < 0.001 ? `${+(s * 1e6).toPrecision(3)} µs` : `${+(s * 1e3).toPrecision(3)} ms`;
  if (s < 60) return `${+s.toPrecision(3)} s`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => s >= size);
  const [big, small] = [parts[first], parts[first + 1]];
  const rest = small && Math.floor((s % big[0]) / small[0]);
  return `${Math.floor(s / big[0])} ${big[1]}` + (rest ? ` ${rest} ${small[1]}` : "");
}

// left prints how long it is until a time; "" if there is none, or it has passed.
export function left(until, now) {
  const s = (new Date(until) - now) / 1000;
  return until && s > 0 ? seconds(s) : "";
}

// time prints a moment in the zone of the browser, as Swedes and the command line do: the date only
// if it is not today's.
export function time(text, now) {
  if (!text) return "–";
  const t = new Date(text);
  return t.toDateString() === now.toDateString() ? t.toLocaleTimeString("sv") : t.toLocaleString("sv");
}

// hold prints what an item waits for.
export function hold(h, name, now) {
  const what = h.class === name ? h.text : `${h.text} of ${h.class}`;
  const rest = left(h.until, now);
  if (!rest) return what;
  return new Date(h.until) - now < 60_000 ? `${what}, ${rest}` : `${what} until ${time(h.until, now)}, ${rest}`;
}
