// Keeps a page current: it is read again every two seconds while it is shown, and the parts that changed are replaced.

import { prepare } from './page.js';

const EVERY_MS = 2000;

// As they came from the server: scripts change what is shown.
const known = new Map([...document.querySelectorAll('[data-live]')].map((part) => [part.id, null]));

function replace(page) {
  for (const part of page.querySelectorAll('[data-live]')) {
    const text = part.outerHTML;
    const old = document.getElementById(part.id);
    if (!old || known.get(part.id) === text) continue;
    const isFirst = known.get(part.id) === null;
    known.set(part.id, text);
    // What the first answer has is shown already, unless it changed in between.
    if (isFirst && old.textContent === part.textContent) continue;
    const open = [...old.querySelectorAll('details')].map((details) => details.open);
    old.replaceWith(part);
    part.querySelectorAll('details').forEach((details, at) => { details.open = open[at] ?? false; });
    prepare(part);
  }
}

async function again() {
  if (!document.hidden) {
    let isAway = true;
    try {
      const answer = await fetch(location.href, { cache: 'no-store' });
      if (answer.ok) {
        replace(new DOMParser().parseFromString(await answer.text(), 'text/html'));
        isAway = false;
      }
    } catch { /* The notice below names it. */ }
    document.getElementById('away').hidden = !isAway;
  }
  setTimeout(again, EVERY_MS);
}

setTimeout(again, EVERY_MS);
