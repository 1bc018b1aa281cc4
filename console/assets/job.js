// A job that runs: its steps, its text, and pictures as they are painted. What it ended with is a page of the server.

import { follow } from './stream.js';

const page = document.getElementById('job');
const find = (selector) => page.querySelector(selector);
const FORMATS = ['png', 'jpeg', 'webp', 'gif'];
// By the name of a state: the class of its badge and its text. A phase has no badge.
const STATES = JSON.parse(page.dataset.states);
let hasText = false;
let shown = '';

// A step of the timeline. Only what this page saw happen has a time: events that are sent again have none.
function step(text, isLive) {
  if (text === shown) return;
  shown = text;
  const line = document.createElement('li');
  const name = document.createElement('span');
  name.textContent = text;
  line.append(name);
  if (isLive) {
    const time = document.createElement('time');
    time.dateTime = new Date().toISOString();
    time.textContent = new Date().toLocaleTimeString();
    line.append(' ', time);
  }
  find('#timeline').append(line);
}

function progress({ step: at, total, phase }, isLive) {
  const bar = find('#bar');
  find('#progress').hidden = false;
  bar.max = Math.max(total, 1);
  bar.value = Math.min(at, bar.max);
  const name = find('#progress .phase');
  const text = STATES[phase]?.[1] ?? phase ?? '';
  if (name.dataset.phase !== text) {
    name.dataset.phase = text;
    if (text) step(text, isLive);
  }
  name.textContent = `${text} ${at} / ${total}`;
}

function picture({ data, format, preview }) {
  if (!FORMATS.includes(format)) return;
  const place = find('#pictures');
  // A preview takes the place of the one before.
  let image = place.querySelector('img.preview');
  if (!image) {
    image = document.createElement('img');
    place.append(image);
  }
  image.src = `data:image/${format};base64,${data}`;
  image.className = preview ? 'preview' : '';
  image.alt = preview ? page.dataset.textPreview : page.dataset.textImage;
}

// Adds to a text that scrolls, and keeps its end in sight of who is at the end.
function append(target, text) {
  const isAtEnd = target.scrollHeight - target.scrollTop - target.clientHeight < 50;
  target.append(text);
  if (isAtEnd) target.scrollTop = target.scrollHeight;
}

function state({ state: name, reason }, isLive) {
  // A phase of the job that is not a state of its own keeps the badge.
  const [tone, text] = STATES[name] ?? [null, name];
  step(text, isLive);
  if (tone) {
    const badge = document.getElementById('badge');
    badge.className = `badge ${tone}`;
    badge.textContent = text;
  }
  find('#waiting').hidden = !reason;
  find('#waiting').textContent = reason ?? '';
}

function take(event, _, isLive) {
  if (event.type === 'token') {
    const target = event.reasoning ? find('.thoughts') : find('#text');
    if (event.reasoning) find('.reasoning').hidden = false;
    else target.hidden = false;
    if (!hasText) {
      hasText = true;
      step(page.dataset.textFirst, isLive);
    }
    append(target, event.content);
  } else if (event.type === 'progress') {
    progress(event, isLive);
  } else if (event.type === 'status') {
    state(event, isLive);
  } else if (event.type === 'image') {
    picture(event);
  }
}

if (page.dataset.open === 'true') {
  const controller = new AbortController();
  addEventListener('pagehide', () => controller.abort());
  const problems = { lost: page.dataset.textAgain, busy: page.dataset.textBusy };
  const report = (problem) => { find('#status').textContent = problems[problem] ?? ''; };
  follow(page.dataset.id, { take, report, signal: controller.signal }).then((end) => {
    if (end === 'signed-out') find('#status').textContent = page.dataset.textEnded;
    else if (end === 'forbidden') find('#status').textContent = page.dataset.textForbidden;
    else if (!controller.signal.aborted) location.reload();
  });
}
