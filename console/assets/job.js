// A job that runs: its steps, its text, and pictures as they are painted. What it ended with is a page of the server.

import { follow } from './stream.js';

const page = document.getElementById('job');
const find = (selector) => page.querySelector(selector);
const FORMATS = ['png', 'jpeg', 'webp', 'gif'];
let hasText = false;

function step(text) {
  const line = document.createElement('li');
  const name = document.createElement('span');
  name.textContent = text;
  const time = document.createElement('time');
  time.dateTime = new Date().toISOString();
  time.textContent = new Date().toLocaleTimeString();
  line.append(name, ' ', time);
  find('#timeline').append(line);
}

function progress({ step: at, total, phase }) {
  const bar = find('#bar');
  find('#progress').hidden = false;
  bar.max = Math.max(total, 1);
  bar.value = Math.min(at, bar.max);
  const name = find('#progress .phase');
  const text = phase ?? '';
  if (name.dataset.phase !== text) {
    name.dataset.phase = text;
    if (text) step(text);
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

function take(event) {
  if (event.type === 'token') {
    const target = event.reasoning ? find('.thoughts') : find('#text');
    if (event.reasoning) find('.reasoning').hidden = false;
    else target.hidden = false;
    if (!hasText) {
      hasText = true;
      step(page.dataset.textFirst);
    }
    target.append(event.content);
  } else if (event.type === 'progress') {
    progress(event);
  } else if (event.type === 'status') {
    step(event.state);
    document.getElementById('badge').textContent = event.state;
    find('#waiting').hidden = !event.reason;
    find('#waiting').textContent = event.reason ?? '';
  } else if (event.type === 'image') {
    picture(event);
  }
}

if (page.dataset.open === 'true') {
  const controller = new AbortController();
  addEventListener('pagehide', () => controller.abort());
  const report = (isLost) => { find('#status').textContent = isLost ? page.dataset.textAgain : ''; };
  follow(page.dataset.id, { take, report, signal: controller.signal }).then((end) => {
    if (end === 'signed-out') find('#status').textContent = page.dataset.textEnded;
    else if (!controller.signal.aborted) location.reload();
  });
}
