// Writes segments.tsv: texts, and in how many parts another program sends them.
//
//     npm install sms-segments-calculator@1.3.0 && node segments.js >segments.tsv
//
// Each line has the encoding, the number of parts, and the text as JSON.
const { SegmentedMessage } = require("sms-segments-calculator")

const texts = ["", "a", "Hello", "[", "€", "ж", "😀"]
const around = (n) => [n - 2, n - 1, n, n + 1, n + 2]
for (const n of [160, 153 * 2, 153 * 3].flatMap(around)) {
  texts.push("x".repeat(n), "é".repeat(n), "x".repeat(n - 1) + "ç")
  for (let at = 0; at < 4; at++) texts.push("x".repeat(n - 2 - at) + "{" + "y".repeat(at)) // 2 septets
}
for (const n of [76, 77, 80, 81, 153, 154]) texts.push("[".repeat(n), "a" + "~".repeat(n), "€".repeat(n))
for (const n of [70, 67 * 2, 67 * 3, 67 * 7].flatMap(around)) {
  texts.push("ж".repeat(n))
  for (let at = 0; at < 4; at++) texts.push("ж".repeat(n - 2 - at) + "😀" + "ж".repeat(at)) // 2 units
}
texts.push("x".repeat(153 * 7), "x".repeat(153 * 7 + 1))
for (const n of [33, 34, 35, 36, 66, 67, 68]) texts.push("😀".repeat(n), "я" + "😀".repeat(n))
// A generator that always yields the same.
let seed = 1
const random = (n) => (seed = (seed * 48271) % 2147483647) % n
for (let i = 0; i < 60; i++) {
  const letters = i % 3 ? "abc[]{}€ \n" : "abжц😀é"
  const all = [...letters]
  texts.push(Array.from({ length: random(400) }, () => all[random(all.length)]).join(""))
}
for (const text of texts) {
  const m = new SegmentedMessage(text, "auto", false)
  console.log(m.encodingName + "\t" + m.segmentsCount + "\t" + JSON.stringify(text))
}
