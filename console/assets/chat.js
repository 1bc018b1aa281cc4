// Chat. A reply is a job: it goes on while its page is reloaded, and can be stopped, priced and looked up like any other.
// The conversation is kept in this tab only.

import { keepChoices, keepTurns, keptTurns, restoreChoices } from './kept.js';
import { Markdown } from './markdown.js';
import { copyWith } from './page.js';
import { follow, pauseAfter } from './stream.js';

const chat = document.getElementById('chat');
const find = (id) => document.getElementById(id);
const texts = chat.dataset;
// By the name of a phase: nothing, and its text.
const STATES = JSON.parse(texts.states);
const MAX_PICTURE_BYTES = 4 << 20;
const PICTURES = ['image/png', 'image/jpeg', 'image/webp'];
const count = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6, useGrouping: 'min2' });
const seconds = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 });

// Requests of one message, of which the network answers at most one.
const MAX_TRIES = 5;

// The keyboards on screens have no other key with which a line begins.
const isTouch = matchMedia('(pointer: coarse)');

let turns = [];
let pictures = [];
// The turn that the message in the box replaces once it is sent, and the conversation before the last new one.
let editing = null;
let previous = [];
const running = new Map();

const keep = () => keepTurns(turns);

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
    const [item, button] = [document.createElement('span'), document.createElement('button')];
    item.className = 'attached';
    button.type = 'button';
    button.className = 'plain';
    button.textContent = '\u00d7';
    button.title = `${texts.textRemove} ${at + 1}`;
    button.setAttribute('aria-label', button.title);
    button.addEventListener('click', () => {
      remove(at);
      find('text').focus();
    });
    item.append(image, button);
    return item;
  }));
}

function facts(reply) {
  const parts = [];
  if (reply.credits !== undefined) parts.push(`${count.format(reply.credits)} ${reply.credits === 1 ? texts.textCredit : texts.textCredits}`);
  if (reply.tokens) parts.push(`${count.format(reply.tokens)} ${texts.textTokens}`);
  if (reply.ms) parts.push(texts.textSeconds.replace('{value}', seconds.format(reply.ms / 1000)));
  if (reply.note) parts.push(reply.note);
  return parts.join(' · ');
}

// What is shown already: the article of a turn with the list of its replies, and of a reply its section and its text.
const articles = new Map();
const sections = new WeakMap();

function article(turn) {
  const made = find('turn').content.cloneNode(true).firstElementChild;
  made.querySelector('.written').textContent = turn.text;
  showPictures(made.querySelector('.pictures'), turn.pictures);
  made.querySelector('.edit').addEventListener('click', () => edit(turns.indexOf(turn)));
  made.querySelector('.retry').addEventListener('click', () => retry(turns.indexOf(turn)));
  return { article: made, replies: null };
}

function showReply(reply) {
  const section = find('reply').content.cloneNode(true).firstElementChild;
  section.querySelector('.who').textContent = reply.name;
  section.querySelector('.thoughts').textContent = reply.reasoning;
  section.querySelector('.reasoning').hidden = !reply.reasoning;
  copyWith(section.querySelector('.copy-reply'), () => reply.text, texts.textCopied, () => report(texts.textCopied));
  const prose = new Markdown(section.querySelector('.text'), { copy: texts.textCopy, copied: texts.textCopied }, keepEnd);
  prose.add(reply.text);
  sections.set(reply, { section, prose });
  settle(reply);
  return section;
}

function settle(reply) {
  const { section, prose } = sections.get(reply);
  if (reply.ended) prose.end();
  section.setAttribute('aria-busy', String(!reply.ended));
  section.classList.toggle('failed', Boolean(reply.failed));
  section.querySelector('.facts').textContent = facts(reply);
  const link = section.querySelector('.job');
  link.hidden = !reply.job;
  if (reply.job) link.href = `/console/jobs/${reply.job}`;
  section.querySelector('.copy-reply').hidden = !reply.ended || !reply.text;
}

// Shows the turns. Those that are there already stay, so that they are not announced again and keep what is selected in them.
function show() {
  find('start').hidden = turns.length > 0;
  for (const [turn, { article: old }] of articles) {
    if (turns.includes(turn)) continue;
    old.remove();
    articles.delete(turn);
  }
  turns.forEach((turn, at) => {
    if (!articles.has(turn)) {
      articles.set(turn, article(turn));
      find('turns').append(articles.get(turn).article);
    }
    const shown = articles.get(turn);
    // Further up it would take the turns behind it away.
    shown.article.querySelector('.retry').hidden = at < turns.length - 1;
    shown.article.classList.toggle('edited', editing !== null && at >= editing);
    if (shown.replies !== turn.replies) {
      shown.replies = turn.replies;
      shown.article.querySelector('.replies').replaceChildren(...turn.replies.map(showReply));
    }
  });
  showState();
}

function showState() {
  // A button that disappears would take the focus with it.
  if (running.size === 0 && document.activeElement === find('stop')) find('text').focus();
  find('stop').hidden = running.size === 0;
  find('cancel').hidden = editing === null;
  find('back').hidden = turns.length > 0 || previous.length === 0;
  find('send').disabled = running.size > 0;
  for (const button of chat.querySelectorAll('.edit, .retry')) button.disabled = running.size > 0;
  const isComparing = find('compare').checked;
  find('other').hidden = !isComparing;
  const options = [chosen('model'), isComparing && chosen('second')].filter(Boolean);
  find('attach').hidden = !options.some((option) => option.dataset.pictures === 'true');
}

// --- What is sent.

// The conversation until this turn. What got no reply is left out, because models take turns; so are pictures for a
// model that takes none.
function messages(turn, at) {
  const all = [];
  const { system, takesPictures } = turn.replies[at];
  if (system) all.push({ role: 'system', content: system });
  for (const one of turns.slice(0, turns.indexOf(turn) + 1)) {
    const reply = one.replies[at] ?? one.replies[0];
    if (one !== turn && !reply?.text) continue;
    const parts = takesPictures ? one.pictures.map((url) => ({ type: 'image_url', image_url: { url } })) : [];
    all.push({ role: 'user', content: parts.length ? [...parts, { type: 'text', text: one.text }] : one.text });
    if (one !== turn) all.push({ role: 'assistant', content: reply.text });
  }
  return all;
}

// A refusal of the network, in its words.
class Refused extends Error {}

// Submits the job of a reply. A lost connection does not show whether the job was accepted: with the same key it is
// accepted once.
async function submit(turn, reply, at, signal) {
  const body = JSON.stringify({ workload: reply.model, input: { messages: messages(turn, at), ...reply.options } });
  for (let tries = 1; ; tries += 1) {
    try {
      const answer = await fetch('/console/jobs', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'Idempotency-Key': reply.key },
        body,
      });
      if (answer.status === 401) throw new Refused(texts.textEnded);
      const { data, error } = await answer.json();
      if (error) throw new Refused(error.message);
      return data.id;
    } catch (error) {
      if (error instanceof Refused || tries === MAX_TRIES) throw error;
      report(texts.textAgain);
      await pauseAfter(tries, signal);
    }
  }
}

async function begin(turn, reply, at) {
  const controller = new AbortController();
  running.set(reply, controller);
  showState();
  try {
    reply.job = await submit(turn, reply, at, controller.signal);
    report('');
    if (reply.isStopping) await cancel(reply.job);
    // The conversation was replaced meanwhile.
    if (controller.signal.aborted) return;
    keep();
    await read(reply, controller);
  } catch (error) {
    fail(reply, error instanceof Refused ? error.message : texts.textFailed);
  } finally {
    finish(reply);
  }
}

function fail(reply, message) {
  reply.ended = true;
  reply.failed = true;
  reply.note = message;
}

function finish(reply) {
  running.delete(reply);
  keep();
  settle(reply);
  if (running.size === 0) report('');
  showState();
}

async function read(reply, controller) {
  const { section, prose } = sections.get(reply);
  let connections = 0;
  const take = (event, last, isLive) => {
    reply.last = last;
    if (event.type === 'token') {
      if (event.reasoning) {
        reply.reasoning += event.content;
        section.querySelector('.reasoning').hidden = false;
        keepEnd(() => section.querySelector('.thoughts').append(event.content));
      } else {
        reply.text += event.content;
        prose.add(event.content);
        report('');
      }
    } else if (event.type === 'status' && event.reason) {
      report(`${texts.textWaiting} ${event.reason}`);
    } else if (event.type === 'progress') {
      report(`${texts.textProgress} ${STATES[event.phase]?.[1] ?? event.phase ?? ''} ${event.step} / ${event.total}`);
    } else if (event.type === 'done') {
      reply.ended = true;
      reply.credits = event.usage.credits_used;
      reply.tokens = event.usage.total_tokens;
      // An end that is sent again, after a reload or a lost connection, does not show when it was.
      if (isLive || (reply.begun >= performance.timeOrigin && connections === 1)) reply.ms = Date.now() - reply.begun;
    } else if (event.type === 'error') {
      const isStopped = event.code === 'cancelled_by_user';
      fail(reply, isStopped ? texts.textStopped : event.error);
      reply.failed = !isStopped;
    }
    keepSoon();
  };
  const problems = { lost: texts.textAgain, busy: texts.textBusy };
  const noted = (problem) => {
    if (!problem) connections += 1;
    report(problems[problem] ?? '');
  };
  const end = await follow(reply.job, { after: reply.last, take, report: noted, signal: controller.signal });
  const ends = { 'signed-out': texts.textEnded, forbidden: texts.textForbidden };
  if (!reply.ended && !controller.signal.aborted) fail(reply, ends[end] ?? texts.textFailed);
}

// Shows something, and keeps the end in sight of who is at the end.
function keepEnd(showMore) {
  const rest = document.documentElement.scrollHeight - scrollY - innerHeight;
  showMore();
  if (rest < 200) scrollTo({ top: document.documentElement.scrollHeight });
}

// A random key. Without TLS, browsers have no `randomUUID`.
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

// What is chosen for the reply of a model, beside the conversation.
function options(option) {
  const chosen = {};
  const limit = Number(find('max-tokens').value);
  if (limit > 0) chosen.max_tokens = limit;
  if (find('temperature').value !== '') chosen.temperature = Number(find('temperature').value);
  if (find('effort').value && option.dataset.reasoning === 'true') chosen.reasoning_effort = find('effort').value;
  return chosen;
}

function newReply(option) {
  return {
    model: option.value,
    name: option.textContent,
    takesPictures: option.dataset.pictures === 'true',
    system: find('system').value.trim(),
    options: options(option),
    key: newKey(),
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
  if (editing !== null) turns = turns.slice(0, editing);
  const turn = { text, pictures, replies: [] };
  turns.push(turn);
  editing = null;
  write('', []);
  run(turn);
}

// What is in the box.
function write(text, list) {
  find('text').value = text;
  pictures = list;
  showPictures(find('pictures'), pictures, removePicture);
  keepChoices();
}

// The turn and those behind it stay until the message is sent.
function edit(at) {
  editing = at;
  write(turns[at].text, [...turns[at].pictures]);
  show();
  find('text').focus();
}

function cancelEdit() {
  editing = null;
  write('', []);
  show();
  find('text').focus();
}

function retry(at) {
  editing = null;
  run(turns[at]);
  // On a phone, the keyboard would cover the reply.
  if (!isTouch.matches) find('text').focus();
}

function removePicture(at) {
  pictures = pictures.filter((_, other) => other !== at);
  showPictures(find('pictures'), pictures, removePicture);
}

const takesPictures = () => !find('attach').hidden;

async function attach(files) {
  for (const file of files) {
    if (!PICTURES.includes(file.type)) {
      report(texts.textFormat);
      continue;
    }
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

async function cancel(job) {
  try {
    await fetch(`/console/jobs/${job}/cancel`, { method: 'POST', headers: { Accept: 'application/json' } });
  } catch {
    report(texts.textAgain);
  }
}

// A reply whose job has no id yet is stopped once it has one.
async function stop() {
  await Promise.all([...running.keys()].map((reply) => {
    reply.isStopping = true;
    return reply.job && cancel(reply.job);
  }));
}

// Begins a conversation. The one before can be restored until there is a turn.
function renew() {
  stop();
  running.forEach((controller) => controller.abort());
  if (turns.length > 0) previous = turns;
  [turns, editing] = [[], null];
  keep();
  show();
  find('text').focus();
}

function restorePrevious() {
  [turns, previous] = [previous, []];
  keep();
  show();
  resume();
  find('text').focus();
}

find('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  send(find('text').value);
});
find('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !isTouch.matches && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send(find('text').value);
  }
});
find('stop').addEventListener('click', stop);
find('new').addEventListener('click', renew);
find('back').addEventListener('click', restorePrevious);
find('cancel').addEventListener('click', cancelEdit);
chat.addEventListener('input', keepChoices);
// Pictures that are pasted, or dropped on the conversation, where the model takes any.
function takePictures(event, data) {
  const files = [...(data?.files ?? [])].filter((file) => PICTURES.includes(file.type));
  if (files.length === 0 || !takesPictures()) return;
  event.preventDefault();
  attach(files);
}
find('text').addEventListener('paste', (event) => takePictures(event, event.clipboardData));
chat.addEventListener('dragover', (event) => { if (takesPictures() && event.dataTransfer.types.includes('Files')) event.preventDefault(); });
chat.addEventListener('drop', (event) => takePictures(event, event.dataTransfer));
find('files').addEventListener('change', (event) => attach(event.target.files).then(() => { event.target.value = ''; }));
for (const id of ['model', 'second', 'compare']) find(id).addEventListener('change', showState);
for (const button of chat.querySelectorAll('.suggestion')) button.addEventListener('click', () => send(button.textContent));

// Replies that were not at their end go on.
function resume() {
  for (const turn of turns) {
    turn.replies.forEach((reply, at) => {
      if (reply.ended || running.has(reply)) return;
      // Whether the job was accepted before this page was loaded is known by its key.
      if (!reply.job) {
        begin(turn, reply, at);
        return;
      }
      const controller = new AbortController();
      running.set(reply, controller);
      showState();
      read(reply, controller).then(() => finish(reply));
    });
  }
}

turns = keptTurns();
restoreChoices();
show();
resume();
