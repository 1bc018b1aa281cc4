// Chat. A reply is a job: it goes on while its page is reloaded, and can be stopped, priced and looked up like any other.
// The conversation is kept in this tab only.

import { follow } from './stream.js';

const chat = document.getElementById('chat');
const find = (id) => document.getElementById(id);
const texts = chat.dataset;
const KEY = `island-chat-${texts.account}`;
const MAX_PICTURE_BYTES = 4 << 20;

let turns = [];
let pictures = [];
const running = new Map();

function restore() {
  try {
    turns = JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
  } catch {
    turns = [];
  }
}

function keep() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(turns));
  } catch {
    // Pictures can exceed what a browser keeps; the texts remain.
    const texts = turns.map((turn) => ({ ...turn, pictures: [] }));
    try { sessionStorage.setItem(KEY, JSON.stringify(texts)); } catch { sessionStorage.removeItem(KEY); }
  }
}

let isKept = true;
function keepSoon() {
  if (!isKept) return;
  isKept = false;
  setTimeout(() => { isKept = true; keep(); }, 200);
}

const report = (text) => { find('status').textContent = text; };
const chosen = (select) => find(select).selectedOptions[0];

// --- What is shown.

function showPictures(place, list, remove) {
  place.replaceChildren(...list.map((address, at) => {
    const image = document.createElement('img');
    image.src = address;
    image.alt = `${texts.textPicture} ${at + 1}`;
    if (!remove) return image;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'plain';
    button.append(image);
    button.addEventListener('click', () => remove(at));
    return button;
  }));
}

function facts(reply) {
  const parts = [];
  if (reply.credits !== undefined) parts.push(`${reply.credits} ${texts.textCredits}`);
  if (reply.tokens) parts.push(`${reply.tokens} ${texts.textTokens}`);
  if (reply.ms) parts.push(`${(reply.ms / 1000).toFixed(1)} s`);
  if (reply.note) parts.push(reply.note);
  return parts.join(' · ');
}

function showReply(section, reply) {
  section.querySelector('.who').textContent = reply.name;
  section.querySelector('.text').textContent = reply.text;
  section.querySelector('.thoughts').textContent = reply.reasoning;
  section.querySelector('.reasoning').hidden = !reply.reasoning;
  settle(section, reply);
}

function settle(section, reply) {
  section.setAttribute('aria-busy', String(!reply.ended));
  section.classList.toggle('failed', Boolean(reply.failed));
  section.querySelector('.facts').textContent = facts(reply);
  const link = section.querySelector('.job');
  link.hidden = !reply.job;
  if (reply.job) link.href = `/console/jobs/${reply.job}`;
  section.querySelector('.copy-reply').hidden = !reply.ended || !reply.text;
}

function show() {
  find('start').hidden = turns.length > 0;
  find('turns').replaceChildren(...turns.map((turn, at) => {
    const article = find('turn').content.cloneNode(true).firstElementChild;
    article.querySelector('.written').textContent = turn.text;
    showPictures(article.querySelector('.pictures'), turn.pictures);
    article.querySelector('.edit').addEventListener('click', () => edit(at));
    article.querySelector('.retry').addEventListener('click', () => retry(at));
    article.querySelector('.replies').append(...turn.replies.map((reply) => {
      const section = find('reply').content.cloneNode(true).firstElementChild;
      section.querySelector('.copy-reply').addEventListener('click', () => navigator.clipboard.writeText(reply.text));
      showReply(section, reply);
      return section;
    }));
    return article;
  }));
  showState();
}

function showState() {
  find('stop').hidden = running.size === 0;
  find('send').disabled = running.size > 0;
  for (const button of chat.querySelectorAll('.edit, .retry')) button.disabled = running.size > 0;
  const isComparing = find('compare').checked;
  find('other').hidden = !isComparing;
  const options = [chosen('model'), isComparing && chosen('second')].filter(Boolean);
  find('attach').hidden = !options.some((option) => option.dataset.pictures === 'true');
}

const sectionOf = (turn, reply) => find('turns').children[turns.indexOf(turn)]?.querySelector('.replies').children[turn.replies.indexOf(reply)];

// --- What is sent.

function messages(turn, at) {
  const all = [];
  const system = find('system').value.trim();
  if (system) all.push({ role: 'system', content: system });
  for (const one of turns.slice(0, turns.indexOf(turn) + 1)) {
    const parts = one.pictures.map((url) => ({ type: 'image_url', image_url: { url } }));
    all.push({ role: 'user', content: parts.length ? [...parts, { type: 'text', text: one.text }] : one.text });
    const reply = one.replies[at] ?? one.replies[0];
    if (one !== turn && reply?.text) all.push({ role: 'assistant', content: reply.text });
  }
  return all;
}

async function begin(turn, reply, at) {
  const controller = new AbortController();
  running.set(reply, controller);
  showState();
  const input = { messages: messages(turn, at) };
  const limit = Number(find('max-tokens').value);
  if (limit > 0) input.max_tokens = limit;
  if (find('temperature').value !== '') input.temperature = Number(find('temperature').value);
  if (find('effort').value && reply.reasons) input.reasoning_effort = find('effort').value;
  try {
    const answer = await fetch('/console/jobs', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': reply.key },
      body: JSON.stringify({ workload: reply.model, input }),
    });
    if (answer.status === 401) throw new Error(texts.textEnded);
    const { data, error } = await answer.json();
    if (error) throw new Error(error.message);
    reply.job = data.id;
    keep();
    await read(turn, reply, controller);
  } catch (error) {
    fail(reply, error.message || texts.textFailed);
  }
  finish(turn, reply);
}

function fail(reply, message) {
  reply.ended = true;
  reply.failed = true;
  reply.note = message;
}

function finish(turn, reply) {
  running.delete(reply);
  keep();
  const section = sectionOf(turn, reply);
  if (section) settle(section, reply);
  if (running.size === 0) report('');
  showState();
}

async function read(turn, reply, controller) {
  const section = sectionOf(turn, reply);
  const [text, thoughts] = [section.querySelector('.text'), section.querySelector('.thoughts')];
  const take = (event, last) => {
    reply.last = last;
    if (event.type === 'token') {
      if (event.reasoning) {
        reply.reasoning += event.content;
        section.querySelector('.reasoning').hidden = false;
        thoughts.append(event.content);
      } else {
        reply.text += event.content;
        text.append(event.content);
        report('');
      }
      keepEnd();
    } else if (event.type === 'status' && event.reason) {
      report(`${texts.textWaiting} ${event.reason}`);
    } else if (event.type === 'progress') {
      report(`${texts.textProgress} ${event.phase ?? ''} ${event.step} / ${event.total}`);
    } else if (event.type === 'done') {
      reply.ended = true;
      reply.credits = event.usage.credits_used;
      reply.tokens = event.usage.total_tokens;
      reply.ms = Date.now() - reply.begun;
    } else if (event.type === 'error') {
      const isStopped = event.code === 'cancelled_by_user';
      fail(reply, isStopped ? texts.textStopped : event.error);
      reply.failed = !isStopped;
    }
    keepSoon();
  };
  const lost = (isLost) => { if (isLost) report(texts.textAgain); };
  const end = await follow(reply.job, { after: reply.last, take, report: lost, signal: controller.signal });
  if (!reply.ended && !controller.signal.aborted) fail(reply, end === 'signed-out' ? texts.textEnded : texts.textFailed);
}

// Keeps the end in sight of who is at the end.
function keepEnd() {
  const rest = document.documentElement.scrollHeight - scrollY - innerHeight;
  if (rest < 200) scrollTo({ top: document.documentElement.scrollHeight });
}

function newReply(option) {
  return {
    model: option.value,
    name: option.textContent,
    reasons: option.dataset.reasoning === 'true',
    key: crypto.randomUUID(),
    begun: Date.now(),
    last: 0,
    text: '',
    reasoning: '',
  };
}

function run(turn) {
  const options = [chosen('model')];
  if (find('compare').checked) options.push(chosen('second'));
  turn.replies = options.map(newReply);
  keep();
  show();
  turn.replies.forEach((reply, at) => begin(turn, reply, at));
  scrollTo({ top: document.documentElement.scrollHeight });
}

function send(text) {
  if (running.size > 0 || (!text.trim() && pictures.length === 0)) return;
  const turn = { text, pictures, replies: [] };
  turns.push(turn);
  pictures = [];
  showPictures(find('pictures'), pictures);
  find('text').value = '';
  run(turn);
}

function edit(at) {
  find('text').value = turns[at].text;
  pictures = turns[at].pictures;
  showPictures(find('pictures'), pictures, removePicture);
  turns = turns.slice(0, at);
  keep();
  show();
  find('text').focus();
}

function retry(at) {
  turns = turns.slice(0, at + 1);
  run(turns[at]);
}

function removePicture(at) {
  pictures = pictures.filter((_, other) => other !== at);
  showPictures(find('pictures'), pictures, removePicture);
}

async function attach(files) {
  for (const file of files) {
    if (file.size > MAX_PICTURE_BYTES) {
      report(texts.textLarge);
      continue;
    }
    const reader = new FileReader();
    const address = await new Promise((resolve) => {
      reader.addEventListener('load', () => resolve(reader.result));
      reader.readAsDataURL(file);
    });
    pictures.push(address);
  }
  showPictures(find('pictures'), pictures, removePicture);
}

async function stop() {
  for (const reply of running.keys()) {
    if (reply.job) await fetch(`/console/jobs/${reply.job}/cancel`, { method: 'POST', headers: { Accept: 'application/json' } });
  }
}

find('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  send(find('text').value);
});
find('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send(find('text').value);
  }
});
find('stop').addEventListener('click', stop);
find('new').addEventListener('click', async () => {
  await stop();
  running.forEach((controller) => controller.abort());
  turns = [];
  keep();
  show();
});
find('files').addEventListener('change', (event) => attach(event.target.files).then(() => { event.target.value = ''; }));
for (const id of ['model', 'second', 'compare']) find(id).addEventListener('change', showState);
for (const button of chat.querySelectorAll('.suggestion')) button.addEventListener('click', () => send(button.textContent));

restore();
show();
// Replies that were not at their end go on.
for (const turn of turns) {
  for (const reply of turn.replies.filter((reply) => !reply.ended)) {
    const controller = new AbortController();
    if (!reply.job) {
      fail(reply, texts.textFailed);
      finish(turn, reply);
      continue;
    }
    running.set(reply, controller);
    showState();
    read(turn, reply, controller).then(() => finish(turn, reply));
  }
}
