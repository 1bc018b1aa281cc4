// Formats the texts that language models wrote, on a page whose jobs have ended. Each can be seen as it was written.

import { Markdown } from './markdown.js';

for (const source of document.querySelectorAll('pre[data-prose]')) {
  const { textCopy: copy, textCopied: copied, textWritten, textFormatted } = source.dataset;
  const [shown, button] = [document.createElement('div'), document.createElement('button')];
  shown.className = 'formatted';
  shown.tabIndex = 0;
  const prose = new Markdown(shown, { copy, copied });
  prose.add(source.textContent);
  prose.end();
  button.type = 'button';
  button.className = 'plain written-as';
  const choose = (isFormatted) => {
    source.hidden = isFormatted;
    shown.hidden = !isFormatted;
    button.textContent = isFormatted ? textWritten : textFormatted;
  };
  button.addEventListener('click', () => choose(shown.hidden));
  choose(true);
  source.after(shown);
  source.parentElement.querySelector('figcaption').append(button);
}
