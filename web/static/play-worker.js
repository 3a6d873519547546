// Runs the program of web/play: a request is a line on its standard input, an answer one on its
// standard output. Only the policy of this file allows WebAssembly; see web/asset.go.

const requests = []; // bytes that the program has not read
let read; // what the program waits with for more

// feed hands the program what there is, if it asks for it.
function feed() {
  if (!read || requests.length === 0) return;
  const { buffer, offset, length, done } = read;
  const part = requests[0].subarray(0, length);
  if (part.length === requests[0].length) requests.shift();
  else requests[0] = requests[0].subarray(part.length);
  buffer.set(part, offset);
  read = undefined;
  done(null, part.length);
}

// attach puts the page behind the standard input and output.
function attach(fs) {
  const write = fs.write.bind(fs);
  const decoder = new TextDecoder();
  let line = "";
  fs.read = (fd, buffer, offset, length, _, done) => {
    read = { buffer, offset, length, done };
    feed();
  };
  fs.write = (fd, bytes, offset, length, position, done) => {
    if (fd !== 1) return write(fd, bytes, offset, length, position, done);
    line += decoder.decode(bytes.subarray(offset, offset + length), { stream: true });
    if (line.endsWith("\n")) {
      postMessage({ answer: JSON.parse(line) });
      line = "";
    }
    done(null, length);
  };
}

async function run() {
  const response = await fetch("play.wasm");
  if (!response.ok) throw new Error(response.headers.get("Content-Type")?.startsWith("text/plain") ? await response.text() : `play.wasm: ${response.status}`);
  importScripts("wasm_exec.js");
  attach(globalThis.fs);
  const go = new Go();
  const { instance } = await WebAssembly.instantiateStreaming(response, go.importObject);
  postMessage({ ready: true });
  await go.run(instance);
  throw new Error("the simulation has ended by itself; the console of the browser says why");
}

onmessage = ({ data }) => {
  requests.push(new TextEncoder().encode(`${JSON.stringify(data)}\n`));
  feed();
};
run().catch((error) => postMessage({ failed: error.message }));
