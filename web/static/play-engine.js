// How long a simulation may take, in milliseconds; and how long until the page says that it computes.
const patience = 20_000, notice = 300;

// engine computes in a worker, so that the page stays alive. It computes the latest request only:
// while one is computed, a new one takes the place of that which waits. tell is called with an
// answer and the milliseconds that it took, or with null and a text if there is none. slow is called
// once something takes long.
export function engine(tell, slow) {
  let worker, ready, busy = false, began, timers = [], waiting, broken = false;

  function start() {
    ready = false;
    worker = new Worker("play-worker.js");
    worker.onmessage = ({ data }) => {
      if (data.ready) {
        ready = true;
        watch();
      } else if (data.failed) {
        broken = true; // another attempt would fail too
        end(null, data.failed);
      } else {
        settle();
        tell(data.answer, performance.now() - began);
        next();
      }
    };
  }

  // watch begins to count the time of what is computed.
  function watch() {
    began = performance.now();
    timers = [setTimeout(slow, notice), setTimeout(() => stop(`stopped after ${patience / 1000} s: a shorter time, or lower rates`), patience)];
  }

  function settle() {
    busy = false;
    timers.forEach(clearTimeout);
  }

  function next() {
    if (!waiting || busy) return;
    if (!worker) start();
    busy = true;
    worker.postMessage(waiting);
    waiting = undefined;
    if (ready) watch();
  }

  // end gives up the worker, and what it computes.
  function end(...said) {
    worker.terminate();
    [worker, waiting] = [undefined, undefined];
    settle();
    tell(...said);
  }

  // stop ends what is computed. The next request starts anew.
  function stop(why = "stopped") {
    if (busy) end(null, why);
  }

  return {
    stop,
    ask(request) {
      if (broken) return;
      waiting = request;
      next();
    },
  };
}
