// Texts of models as paragraphs, headings, lists, tables, quotes and code, as they mark them in Markdown. Elements are made one by one and what a model
// wrote is set as text, so that nothing of it becomes a part of the page otherwise (0152). While a text arrives, its last block alone is made again.

import { MAX_TEXT, element, inline } from './inline.js';
import { copyWith } from './page.js';

// Blocks in each other; deeper ones are text.
const MAX_DEPTH = 8;
const MAX_COLUMNS = 32;
// A text is shown at most this often, and for a small part of the time.
const [PAUSE_MS, PAUSE_FACTOR] = [30, 8];

// Each of these functions reads a block that begins at a line, or returns null. A block has the line behind it, and `make` returns its element.

// All marks are taken at once: a long line of them would be read again for each.
const FENCE = /^( {0,3})(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const TASK = /^\[([ xX])\] /;

// The columns of white space at the start of a line.
function indentOf(line) {
  let columns = 0;
  for (const char of line) {
    if (char === '\t') columns += 4 - columns % 4;
    else if (char === ' ') columns += 1;
    else break;
  }
  return columns;
}

// A line without that many columns of white space at its start.
function dedent(line, columns) {
  let [at, gone] = [0, 0];
  while (gone < columns && (line[at] === ' ' || line[at] === '\t')) {
    gone += line[at] === '\t' ? 4 - gone % 4 : 1;
    at += 1;
  }
  return ' '.repeat(Math.max(0, gone - columns)) + line.slice(at);
}

function closesFence(line, marks) {
  const text = line.trim();
  return text.length >= marks.length && text[0] === marks[0] && text === marks[0].repeat(text.length);
}

function fence(lines, at) {
  const found = FENCE.exec(lines[at]);
  if (!found) return null;
  const [, before, marks, info] = found;
  let end = at + 1;
  while (end < lines.length && !closesFence(lines[end], marks)) end += 1;
  const code = lines.slice(at + 1, end).map((line) => dedent(line, before.length)).join('\n');
  const [language] = info.trim().split(/\s/);
  return { end: end + 1, code, make: (texts) => listing(code, language, texts) };
}

// Code with its language and a button that copies it.
function listing(code, language, texts) {
  const [made, head, name, button, place, inner] = ['figure', 'figcaption', 'span', 'button', 'pre', 'code'].map((one) => element(one));
  made.className = 'code';
  name.textContent = language;
  button.type = 'button';
  button.className = 'plain';
  button.textContent = texts.copy;
  copyWith(button, () => inner.textContent, texts.copied);
  place.tabIndex = 0;
  inner.append(document.createTextNode(code));
  place.append(inner);
  head.append(name, button);
  made.append(head, place);
  return made;
}

function heading(lines, at) {
  const found = /^ {0,3}(#{1,6})[ \t]+(?=\S)/.exec(lines[at]);
  if (!found) return null;
  const text = lines[at].slice(found[0].length).trimEnd().replace(/(^|[ \t])#+$/, '');
  // The page has headings of its own above these.
  const level = Math.min(found[1].length + 2, 6);
  return { end: at + 1, make: () => inline(text, element(`h${level}`)) };
}

function rule(lines, at) {
  const marks = indentOf(lines[at]) < 4 ? lines[at].replaceAll(/[ \t\r]/g, '') : '';
  const isRule = marks.length > 2 && '-*_'.includes(marks[0]) && marks === marks[0].repeat(marks.length);
  return isRule ? { end: at + 1, make: () => element('hr') } : null;
}

function quote(lines, at, depth) {
  if (depth === MAX_DEPTH || !QUOTE.test(lines[at])) return null;
  let end = at + 1;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ''));
  return { end, make: (texts) => fill(element('blockquote'), inner, depth + 1, texts) };
}

// The cells of a row. A pipe behind a backslash is text.
function cells(line) {
  const row = line.trim().replace(/^\|/, '');
  const found = [''];
  for (let at = 0; at < row.length; at += 1) {
    if (row[at] === '\\' && row[at + 1] === '|') {
      found.push(`${found.pop()}|`);
      at += 1;
    } else if (row[at] === '|') {
      found.push('');
    } else {
      found.push(found.pop() + row[at]);
    }
  }
  if (found.length > 1 && found.at(-1).trim() === '') found.pop();
  return found.map((cell) => cell.trim());
}

function table(lines, at) {
  const [head, below] = [lines[at], lines[at + 1]];
  if (below === undefined || !head.includes('|') || !/^[ \t|:-]*\r?$/.test(below) || !below.includes('-')) return null;
  const [heads, rules] = [cells(head), cells(below)];
  if (heads.length !== rules.length || heads.length > MAX_COLUMNS || !rules.every((one) => /^:?-+:?$/.test(one))) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].includes('|')) end += 1;
  const rows = lines.slice(at + 2, end);
  return { end, make: () => grid(heads, rules, rows) };
}

function grid(heads, rules, rows) {
  const align = (one) => (one.endsWith(':') ? (one.startsWith(':') ? 'center' : 'right') : '');
  const [made, place, head, body] = [element('div', 'scroll'), element('table'), element('thead'), element('tbody')];
  const row = (name, texts) => {
    const line = element('tr');
    line.append(...rules.map((one, at) => inline(texts[at] ?? '', element(name, align(one)))));
    return line;
  };
  head.append(row('th', heads));
  for (const cell of head.querySelectorAll('th')) cell.scope = 'col';
  body.append(...rows.map((line) => row('td', cells(line))));
  place.append(head, body);
  made.tabIndex = 0;
  made.append(place);
  return made;
}

// The start of an item of a list: where its mark begins, where its text does, its kind and number.
function item(line) {
  const found = ITEM.exec(line);
  if (!found) return null;
  const [whole, before, mark] = found;
  const begin = indentOf(before);
  const gap = whole.length - before.length - mark.length;
  const isEmpty = whole.length === line.length;
  return {
    begin,
    text: begin + mark.length + (isEmpty || gap > 4 ? 1 : gap),
    rest: line.slice(whole.length),
    kind: mark.at(-1),
    number: mark.length > 1 ? Number.parseInt(mark, 10) : null,
    isEmpty,
  };
}

function list(lines, at, depth) {
  const first = depth < MAX_DEPTH ? item(lines[at]) : null;
  if (!first) return null;
  const items = [];
  let [end, current, open, isAfterBlank] = [at, first, null, false];
  const add = (line) => {
    items.at(-1).push(line);
    const found = FENCE.exec(line);
    if (open ? closesFence(line, open) : found) open = open ? null : found[2];
  };
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const indent = indentOf(line);
    const isBlank = line.trim() === '';
    const next = items.length === 0 || indent < current.begin + 2 ? item(line) : null;
    if (isBlank || open || (items.length > 0 && indent >= current.begin + 2)) {
      // Two columns are enough, since models do not count them. Code may have less, until it ends.
      add(dedent(line, Math.min(indent, current.text)));
    } else if (next && next.kind === first.kind && !rule(lines, end)) {
      current = next;
      items.push([]);
      add(next.rest);
    } else if (!isAfterBlank && !begins(lines, end, depth)) {
      add(line.trimStart());
    } else {
      break;
    }
    isAfterBlank = isBlank;
  }
  return { end, make: (texts) => bullets(first, items, depth, texts) };
}

function bullets(first, items, depth, texts) {
  const made = element(first.number === null ? 'ul' : 'ol');
  if (first.number !== null) made.start = first.number;
  made.append(...items.map((lines) => {
    lines[0] = lines[0].replace(TASK, (_, mark) => (mark === ' ' ? '\u2610 ' : '\u2611 '));
    return fill(element('li'), lines, depth + 1, texts);
  }));
  return made;
}

// Whether a line ends the paragraph above it.
function begins(lines, at, depth) {
  if (FENCE.test(lines[at]) || heading(lines, at) || rule(lines, at) || (depth < MAX_DEPTH && QUOTE.test(lines[at])) || table(lines, at)) return true;
  const found = depth < MAX_DEPTH ? item(lines[at]) : null;
  return found !== null && !found.isEmpty && (found.number ?? 1) === 1;
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== '' && !begins(lines, end, depth)) end += 1;
  const text = lines.slice(at, end).join('\n').trimEnd();
  return { end, make: () => inline(text, element('p')) };
}

// The blocks of some lines, with the lines where they begin.
function blocks(lines, depth) {
  const found = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === '') {
      at += 1;
      continue;
    }
    const block = fence(lines, at) ?? heading(lines, at) ?? rule(lines, at) ?? quote(lines, at, depth) ?? table(lines, at)
      ?? list(lines, at, depth) ?? paragraph(lines, at, depth);
    found.push({ ...block, begin: at });
    at = block.end;
  }
  return found;
}

function fill(parent, lines, depth, texts) {
  parent.append(...blocks(lines, depth).map((block) => block.make(texts)));
  return parent;
}

// --- A text that arrives.

// Replaces the text of a node, of which only the end is new as a rule.
function replace(node, text) {
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
}

export class Markdown {
  // `texts` has those of the buttons, `copy` and `copied`. `around` gets a function that shows what is new, and calls it.
  constructor(place, texts, around = (show) => show()) {
    this.place = place;
    this.texts = texts;
    this.around = around;
    // What follows the blocks that no longer change, its elements, and the text of the only one if it is code.
    this.rest = '';
    this.open = [];
    this.code = null;
    this.long = null;
    this.timer = null;
    this.last = Number.NEGATIVE_INFINITY;
    this.pause = PAUSE_MS;
  }

  add(text) {
    this.rest += text;
    const left = this.last + this.pause - performance.now();
    if (left <= 0) this.show();
    else this.timer ??= setTimeout(() => this.show(), left);
  }

  // Shows what is left at the end of the text.
  end() {
    if (this.timer !== null) this.show();
  }

  // Shows nothing more.
  stop() {
    clearTimeout(this.timer);
  }

  show() {
    clearTimeout(this.timer);
    this.timer = null;
    const begun = performance.now();
    this.around(() => this.update());
    this.last = performance.now();
    this.pause = Math.max(PAUSE_MS, PAUSE_FACTOR * (this.last - begun));
  }

  update() {
    const lines = this.rest.split('\n');
    // The last line can still become something else, and so can the last of the blocks before it.
    const whole = blocks(lines.slice(0, -1), 0);
    const begin = whole.at(-1)?.begin ?? 0;
    const ended = whole.slice(0, -1).map((block) => block.make(this.texts));
    const rest = lines.slice(begin).join('\n');
    const last = blocks(lines.slice(begin), 0);
    const [only] = last.length === 1 ? last : [];
    const isLong = rest.length > MAX_TEXT && only?.code === undefined;
    if (ended.length === 0 && this.code && only?.code !== undefined) {
      replace(this.code, only.code);
    } else if (ended.length === 0 && this.long && isLong) {
      replace(this.long, rest);
    } else {
      const made = isLong ? [element('p')] : last.map((block) => block.make(this.texts));
      this.open.forEach((node) => node.remove());
      this.place.append(...ended, ...made);
      this.open = made;
      this.code = only?.code === undefined ? null : made[0].querySelector('code').firstChild;
      this.long = isLong ? made[0].appendChild(document.createTextNode(rest)) : null;
    }
    this.rest = rest;
  }
}
