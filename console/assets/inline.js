// The formats within a block of a text: emphasis, code and links. Elements are made one by one, and what a model wrote is set as text (0152).

// Formats in each other, and brackets that may begin a link; deeper ones are text.
const MAX_DEPTH = 8;
// Characters of a text with formats, and of an address.
export const MAX_TEXT = 100000;
const MAX_ADDRESS = 2048;

export function element(name, className = '') {
  const made = document.createElement(name);
  if (className) made.className = className;
  return made;
}

const SPECIAL = /[\\`*_~[\]<]|!\[|https?:\/\//g;
const ESCAPED = '`*_~#|<>';
const AUTOLINK = new RegExp(`<(https?://[^\\s<>]{1,${MAX_ADDRESS}})>`, 'y');
// Brackets, pipes and the punctuation of Chinese and Japanese end an address that stands in a text.
const BARE = new RegExp(`https?://[^\\s<>"\`*\\\\\\[\\]|\\u3000-\\u303f\\uff00-\\uffef]{1,${MAX_ADDRESS}}`, 'y');
const isSpace = (char) => char === '' || /\s/.test(char);
const isPunctuation = (char) => /[\p{P}\p{S}]/u.test(char);
const isWord = (char) => /[0-9A-Za-z]/.test(char);

// How many elements are in each other below an element.
const heights = new WeakMap();

// An address to which a text may lead: on another site, and without a name that looks like one.
function safe(address) {
  if (!/^https?:\/\//i.test(address)) return null;
  try {
    const url = new URL(address);
    return url.username || url.password ? null : url;
  } catch {
    return null;
  }
}

// A label that is an address without a scheme. `Node.js` and `README.md` are names of other things.
const ADDRESS = /^\s*((?:[\w-]+\.)+(?:[a-z]{2,}(?=(?::\d+)?\/)|(?:com|org|net|gov|edu|bank)(?=\s*$)))/i;

// Whether a label names another host than the one to which its address leads.
function deceives(label, url) {
  const bare = (host) => host.toLowerCase().replace(/^www\./, '');
  const written = /(?:https?:\/\/|www\.)([^\s/?#]+)/i.exec(label);
  if (written) return bare(written[1]) !== bare(url.host);
  const named = ADDRESS.exec(label.slice(0, MAX_ADDRESS));
  // Hosts below one belong to the same people as a rule.
  return named !== null && !`.${url.hostname}`.endsWith(`.${bare(named[1])}`);
}

// The text of what follows a node.
function behind(node) {
  let text = '';
  for (let next = node.nextSibling; next; next = next.nextSibling) text += next.textContent;
  return text;
}

// Makes one node of texts beside each other. `normalize` copies the text before for each of them.
function join(parent) {
  for (let node = parent.firstChild; node; node = node.nextSibling) {
    if (node.nodeType !== Node.TEXT_NODE) {
      join(node);
      continue;
    }
    const texts = [node.data];
    while (node.nextSibling?.nodeType === Node.TEXT_NODE) {
      texts.push(node.nextSibling.data);
      node.nextSibling.remove();
    }
    if (texts.length > 1) node.data = texts.join('');
  }
}

function link(url) {
  const made = element('a');
  made.href = url.href;
  made.rel = 'noopener nofollow';
  made.target = '_blank';
  made.title = url.href;
  return made;
}

// An address in parentheses, from behind the first one, with a title or without; and where it ends.
function destination(text, from) {
  const rest = text.slice(from, from + MAX_ADDRESS);
  const found = /^\s*(?:<([^<>\n]*)>|([^\s<][^\s]*))/.exec(rest);
  if (!found) return null;
  let address = found[1] ?? found[2];
  let at = found[0].length;
  if (found[1] === undefined) {
    // Parentheses within it have to be closed in it.
    let [end, open] = [0, 0];
    for (; end < address.length; end += 1) {
      if (address[end] === '(') open += 1;
      if (address[end] === ')') open -= 1;
      if (open < 0) break;
    }
    at -= address.length - end;
    address = address.slice(0, end);
  }
  const close = /^(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(rest.slice(at));
  return close && { address, end: from + at + close[0].length };
}

// The formats of one text. Those that begin and end with the same marks are found as CommonMark does it: with a list of the marks that may begin one.
class Inline {
  constructor(text, parent) {
    this.text = text;
    this.parent = parent;
    // Marks of emphasis, linked in both directions, and brackets that may begin a link.
    this.last = null;
    this.number = 0;
    this.brackets = [];
    // Lengths of marks of code behind which there is no such mark.
    this.unclosed = new Set();
  }

  build() {
    const { text } = this;
    let at = 0;
    while (at < text.length) {
      SPECIAL.lastIndex = at;
      const found = SPECIAL.exec(text);
      const next = found ? found.index : text.length;
      if (next > at) this.parent.append(text.slice(at, next));
      if (!found) break;
      at = this.special(found[0], next);
    }
    this.emphasize(null);
    join(this.parent);
  }

  // Handles a mark. Returns where the text goes on.
  special(mark, at) {
    const { text } = this;
    if (mark === '\\') {
      const isEscaped = ESCAPED.includes(text[at + 1] ?? ' ');
      this.parent.append(isEscaped ? text[at + 1] : text.slice(at, at + 2));
      return at + 2;
    }
    if (mark === '`') return this.code(at);
    if (mark === '[' || mark === '![') {
      const node = document.createTextNode(mark);
      this.parent.append(node);
      this.brackets.push({ node, before: this.last, isImage: mark === '![' });
      if (this.brackets.length > MAX_DEPTH) this.brackets.shift();
      return at + mark.length;
    }
    if (mark === ']') return this.close(at);
    if (mark === '<' || mark.startsWith('http')) return this.bare(mark, at);
    return this.marks(mark, at);
  }

  code(at) {
    const { text } = this;
    const length = /^`+/.exec(text.slice(at, at + MAX_ADDRESS))[0].length;
    const begin = at + length;
    for (let next = begin; !this.unclosed.has(length);) {
      next = text.indexOf('`', next);
      if (next < 0) {
        this.unclosed.add(length);
        break;
      }
      let end = next;
      while (text[end] === '`') end += 1;
      if (end - next === length) {
        const inner = text.slice(begin, next).replaceAll('\n', ' ');
        const isPadded = inner.length > 2 && inner.startsWith(' ') && inner.endsWith(' ') && inner.trim() !== '';
        const made = element('code');
        made.append(isPadded ? inner.slice(1, -1) : inner);
        this.parent.append(made);
        return end;
      }
      next = end;
    }
    this.parent.append(text.slice(at, begin));
    return begin;
  }

  // An address that stands alone in the text, perhaps in angle brackets.
  bare(mark, at) {
    const { text } = this;
    const pattern = mark === '<' ? AUTOLINK : BARE;
    pattern.lastIndex = at;
    const found = isWord(text[at - 1] ?? '') && mark !== '<' ? null : pattern.exec(text);
    let address = found?.[1] ?? found?.[0] ?? '';
    if (found && mark !== '<') {
      // The punctuation of a sentence is not a part of it, nor is a parenthesis that encloses it.
      let [end, unopened] = [address.length, address.split(')').length - address.split('(').length];
      for (; '.,;:!?\'"_~'.includes(address[end - 1]) || (address[end - 1] === ')' && unopened > 0); end -= 1) {
        if (address[end - 1] === ')') unopened -= 1;
      }
      address = address.slice(0, end);
    }
    const url = safe(address);
    if (!url) {
      this.parent.append(mark);
      return at + mark.length;
    }
    const made = link(url);
    made.append(address);
    this.parent.append(made);
    return at + (mark === '<' ? found[0].length : address.length);
  }

  // A closing bracket: the end of a link, or text. Pictures of other sites are links to them.
  close(at) {
    const { text } = this;
    const open = this.brackets.pop();
    const target = open && text[at + 1] === '(' ? destination(text, at + 2) : null;
    const url = target && safe(target.address);
    if (url && !deceives(behind(open.node), url)) {
      this.emphasize(open.before);
      const made = link(url);
      while (open.node.nextSibling) made.append(open.node.nextSibling);
      for (const inner of made.querySelectorAll('a')) inner.replaceWith(...inner.childNodes);
      if (made.textContent === '') made.append(url.href);
      open.node.replaceWith(made);
      heights.set(made, height(made) + 1);
      // A link contains no other one.
      if (!open.isImage) this.brackets = [];
      return target.end;
    }
    this.parent.append(']');
    return at + 1;
  }

  // Marks of emphasis, which begin or end one by what is around them.
  marks(char, at) {
    const { text } = this;
    let end = at;
    while (text[end] === char) end += 1;
    const [count, before, after] = [end - at, text[at - 1] ?? '', text[end] ?? ''];
    const node = document.createTextNode(text.slice(at, end));
    this.parent.append(node);
    const opens = !isSpace(after) && (!isPunctuation(after) || isSpace(before) || isPunctuation(before));
    const closes = !isSpace(before) && (!isPunctuation(before) || isSpace(after) || isPunctuation(after));
    // 7*7 and 2**3 are numbers, and name_of_a_thing is a name.
    const isProduct = isWord(before) && isWord(after) && (count === 1 || (/\d/.test(before) && /\d/.test(after)));
    const isName = char === '_' && opens && closes && !isPunctuation(before) && !isPunctuation(after);
    if (count > 3 || isProduct || isName || (char === '~' && count !== 2)) return end;
    this.number += 1;
    const mark = {
      node, char, count, number: this.number, length: count, previous: this.last, next: null,
      opens: opens && (char !== '_' || !closes || isPunctuation(before)),
      closes: closes && (char !== '_' || !opens || isPunctuation(after)),
    };
    if (this.last) this.last.next = mark;
    this.last = mark;
    return end;
  }

  remove(mark) {
    if (mark.previous) mark.previous.next = mark.next;
    if (mark.next) mark.next.previous = mark.previous;
    else this.last = mark.previous;
  }

  // Makes the emphasis of the marks behind `bottom`, and forgets these marks.
  emphasize(bottom) {
    const bottoms = new Map();
    const floor = bottom?.number ?? 0;
    let closer = bottom ? bottom.next : this.last;
    while (!bottom && closer?.previous) closer = closer.previous;
    while (closer) {
      const key = `${closer.char}${closer.opens}${closer.length % 3}`;
      const opener = closer.closes ? this.opener(closer, bottoms.get(key) ?? floor) : null;
      if (opener) {
        closer = this.wrap(opener, closer);
        continue;
      }
      const next = closer.next;
      if (closer.closes) {
        // A later mark of this kind does not look further back.
        bottoms.set(key, closer.previous?.number ?? floor);
        if (!closer.opens) this.remove(closer);
      }
      closer = next;
    }
    this.last = bottom;
    if (bottom) bottom.next = null;
  }

  // The nearest mark before `closer` that it ends, of those with a higher number than `floor`.
  opener(closer, floor) {
    for (let mark = closer.previous; mark && mark.number > floor; mark = mark.previous) {
      const isOdd = (mark.closes || closer.opens) && closer.length % 3 !== 0 && (mark.length + closer.length) % 3 === 0;
      if (mark.char === closer.char && mark.opens && !isOdd) return mark;
    }
    return null;
  }

  // Puts what is between two marks into an element. Returns the mark that comes next.
  wrap(opener, closer) {
    while (opener.next !== closer) this.remove(opener.next);
    const count = Math.min(opener.count, closer.count, 2);
    const made = element(opener.char === '~' ? 'del' : count === 2 ? 'strong' : 'em');
    let deepest = 0;
    for (let node = opener.node.nextSibling; node !== closer.node; node = node.nextSibling) deepest = Math.max(deepest, heights.get(node) ?? 0);
    if (deepest < MAX_DEPTH) {
      while (opener.node.nextSibling !== closer.node) made.append(opener.node.nextSibling);
      opener.node.after(made);
      heights.set(made, deepest + 1);
      for (const mark of [opener, closer]) {
        mark.count -= count;
        mark.node.data = mark.char.repeat(mark.count);
      }
    } else {
      opener.count = closer.count = 0;
    }
    const next = closer.next;
    if (opener.count === 0) this.remove(opener);
    if (closer.count > 0) return closer;
    this.remove(closer);
    return next;
  }
}

const height = (parent) => [...parent.children].reduce((most, child) => Math.max(most, heights.get(child) ?? 0), 0);

// Puts a text with its formats into an element, which is returned.
export function inline(text, parent) {
  if (text.length > MAX_TEXT) parent.append(text);
  else new Inline(text, parent).build();
  return parent;
}
