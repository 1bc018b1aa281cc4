// A job that runs: its steps, its text, and pictures as they are painted. What it ended with is a page of the server.

import { Markdown } from './markdown.js';
import { follow } from './stream.js';

const page = document.getElementById('job');
const find = (selector) => page.querySelector(selector);
const FORMATS = ['png', 'jpeg', 'webp', 'gif'];
// Characters of a text that are shown, and how many each text has.
const MAX_TEXT = 100000;
const lengths = new Map();
// By the name of a state: the class of its badge and its text. A phase has no badge.
const STATES = JSON.parse(page.dataset.states);
// States that are steps of the coordinator's own timeline, which has its times for them.
const STEPS = { queued: 'placed', running: 'started', run: 'started' };
const STEP_TEXTS = { placed: page.dataset.textPlaced, started: page.dataset.textStarted, first: page.dataset.textFirst };
const passed = new Set();
// The text of a language model, which is formatted, and the characters of it; `null` if the page shows the text as it is.
let prose = page.dataset.prose === 'true' ? new Markdown(find('#text'), { copy: page.dataset.textCopy, copied: page.dataset.textCopied }, keepEnd) : null;
let written = '';
let shown = '';
// The line behind which the next step belongs.
let last = find('#timeline').firstElementChild;
// How far the clock of the coordinator is ahead of this machine's, as of when the page arrived.
const [navigation] = performance.getEntriesByType('navigation');
const arrived = Date.now() - performance.now() + (navigation?.responseStart ?? 0);
const ahead = Date.parse(page.dataset.now) - arrived;

// Adds a line. Only what this page saw happen has a time: events that are sent again have none.
function line(text, isLive) {
  const item = document.createElement('li');
  const name = document.createElement('span');
  name.textContent = text;
  item.append(name);
  if (isLive) {
    const time = document.createElement('time');
    const now = new Date(Date.now() + ahead);
    time.dateTime = now.toISOString();
    time.textContent = now.toLocaleTimeString();
    item.append(' ', time);
  }
  last.after(item);
  last = item;
  return item;
}

// A step that the coordinator's timeline has, too: if the page came with it, with its true time, nothing is added.
// Returns whether it was passed the first time.
function pass(step, isLive) {
  if (passed.has(step)) return false;
  passed.add(step);
  const known = find(`#timeline [data-step="${step}"]`);
  if (known) last = known;
  else line(STEP_TEXTS[step], isLive).dataset.step = step;
  return true;
}

function step(name, text, isLive) {
  if (text === shown) return;
  shown = text;
  if (!(STEPS[name] && pass(STEPS[name], isLive))) line(text, isLive);
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
    if (text) step(phase, text, isLive);
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

// Shows more of a text that scrolls, and keeps its end in sight of who is at the end.
function keepEnd(showMore, target = find('#text')) {
  const isAtEnd = target.scrollHeight - target.scrollTop - target.clientHeight < 50;
  showMore();
  if (isAtEnd) target.scrollTop = target.scrollHeight;
}

// Adds to a text. Of a long one the end is shown, because a page with megabytes of text stands still; the page of the ended job has its
// beginning, and all of it as a file.
function append(target, text) {
  keepEnd(() => appendEnd(target, text), target);
}

function appendEnd(target, text) {
  target.append(text);
  let length = (lengths.get(target) ?? 0) + text.length;
  while (length - target.firstChild.length >= MAX_TEXT) {
    length -= target.firstChild.length;
    target.firstChild.remove();
  }
  lengths.set(target, length);
}

// Adds to the text of a language model. A long one is shown as it is, from then on.
function format(text) {
  written += text;
  if (written.length <= MAX_TEXT) {
    prose.add(text);
    return;
  }
  const target = find('#text');
  prose.stop();
  prose = null;
  target.replaceChildren();
  target.classList.add('plain');
  append(target, written);
  written = '';
}

function state({ state: name, reason }, isLive) {
  // A phase of the job that is not a state of its own keeps the badge.
  const [tone, text] = STATES[name] ?? [null, name];
  step(name, text, isLive);
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
    // What was prepared before the text is done; a step that follows is shown again.
    find('#progress').hidden = true;
    pass('first', isLive);
    if (prose && !event.reasoning) format(event.content);
    else append(target, event.content);
  } else if (event.type === 'progress') {
    progress(event, isLive);
  } else if (event.type === 'status') {
    state(event, isLive);
  } else if (event.type === 'image') {
    pass('first', isLive);
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
