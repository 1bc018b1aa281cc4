// Follows the events of a job, across lost connections and coordinators that restart.

const LONGEST_PAUSE_MS = 15000;
// The coordinator sends something at least every 15 seconds, if only a comment.
const SILENCE_MS = 40000;
// What a coordinator sends at first is what happened before the connection was made.
const REPLAY_MS = 1000;

export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

// Pages that were disconnected together do not return together.
export function pauseAfter(failures, signal) {
  return pause(Math.min(LONGEST_PAUSE_MS, 500 * 2 ** (failures - 1)) * (0.5 + Math.random()), signal);
}

// Browsers have few connections for an address, so a page that nobody sees has none.
function shown(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', look);
      resolve();
    };
    document.addEventListener('visibilitychange', look);
    signal.addEventListener('abort', look, { once: true });
    look();
  });
}

// One connection. It ends with `signal`, when nothing arrives on it for a while, and when its page is hidden.
class Attempt {
  constructor(signal) {
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    this.outer = signal;
    this.stop = () => this.controller.abort();
    this.hide = () => { if (document.hidden) this.stop(); };
    signal.addEventListener('abort', this.stop, { once: true });
    document.addEventListener('visibilitychange', this.hide);
    this.alive();
  }

  alive() {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.stop, SILENCE_MS);
  }

  close() {
    clearTimeout(this.timer);
    this.outer.removeEventListener('abort', this.stop);
    document.removeEventListener('visibilitychange', this.hide);
    this.stop();
  }
}

// Calls `take` with each event, its number, and whether it happened while the connection was there, from the one after
// `after` on, until the last one or until `signal` is aborted. `report` gets `lost` while there is no connection, `busy`
// while the account has too many streams, and an empty text otherwise. Resolves to `signed-out`, `forbidden`, `missing`
// or `ended`.
export async function follow(job, { after = 0, take, report = () => {}, signal }) {
  let [last, failures] = [after, 0];
  while (!signal.aborted) {
    await shown(signal);
    if (failures > 0) await pauseAfter(failures, signal);
    if (signal.aborted) break;
    failures += 1;
    const attempt = new Attempt(signal);
    try {
      const answer = await fetch(`/console/jobs/${job}/stream?after=${last}`, { signal: attempt.signal });
      if (answer.status === 401) return 'signed-out';
      if (answer.status === 403) return 'forbidden';
      if (answer.status === 404) return 'missing';
      report(answer.ok ? '' : answer.status === 429 ? 'busy' : 'lost');
      if (!answer.ok) continue;
      const opened = performance.now();
      for await (const { id, event } of events(answer.body, attempt)) {
        failures = 0;
        last = id || last;
        take(event, last, performance.now() - opened > REPLAY_MS);
        if (event.type === 'done' || event.type === 'error') return 'ended';
      }
      report('lost');
    } catch {
      if (document.hidden) failures = 0;
      else if (!signal.aborted) report('lost');
    } finally {
      attempt.close();
    }
  }
  return 'ended';
}

async function* events(body, attempt) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    attempt.alive();
    if (done) return;
    parts.push(value);
    // A frame may be megabytes long: it is joined once, when it is whole.
    if (!value.includes('\n')) continue;
    const frames = parts.splice(0).join('').split('\n\n');
    parts.push(frames.pop());
    for (const frame of frames) {
      const field = (name) => frame.split('\n').find((line) => line.startsWith(`${name}:`))?.slice(name.length + 1).trim();
      const data = field('data');
      if (data) yield { id: Number(field('id') ?? 0), event: JSON.parse(data) };
    }
  }
}
