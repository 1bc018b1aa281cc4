// Follows the events of a job, across lost connections and coordinators that restart.

const LONGEST_PAUSE_MS = 15000;

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

// Calls `take` with each event and its number, from the one after `after` on, until the last one or until `signal` is
// aborted. `report` gets whether the connection is lost. Resolves to `signed-out`, `missing` or `ended`.
export async function follow(job, { after = 0, take, report = () => {}, signal }) {
  let last = after;
  for (let failures = 0; !signal.aborted; failures += 1) {
    if (failures > 0) {
      report(true);
      // Pages that were disconnected together do not return together.
      await pause(Math.min(LONGEST_PAUSE_MS, 500 * 2 ** (failures - 1)) * (0.5 + Math.random()), signal);
    }
    try {
      const answer = await fetch(`/console/jobs/${job}/stream?after=${last}`, { signal });
      if (answer.status === 401) return 'signed-out';
      if (answer.status === 404) return 'missing';
      if (!answer.ok) continue;
      report(false);
      for await (const { id, event } of events(answer.body)) {
        failures = 0;
        last = id || last;
        take(event, last);
        if (event.type === 'done' || event.type === 'error') return 'ended';
      }
    } catch (error) {
      if (signal.aborted) break;
    }
  }
  return 'ended';
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const parts = [];
  for (;;) {
    const { value, done } = await reader.read();
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
