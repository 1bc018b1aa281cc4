// What a tab keeps of a chat: its conversation, and what is chosen and written beside it.

const find = (id) => document.getElementById(id);
const KEY = `island-chat-${find('chat').dataset.account}`;

export function keptTurns() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
  } catch {
    return [];
  }
}

export function keepTurns(turns) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(turns));
  } catch {
    // Pictures can exceed what a browser keeps; the texts remain.
    const texts = turns.map((turn) => ({ ...turn, pictures: [] }));
    try { sessionStorage.setItem(KEY, JSON.stringify(texts)); } catch { sessionStorage.removeItem(KEY); }
  }
}

// What is chosen and written beside the conversation.
const CHOICES = ['model', 'second', 'max-tokens', 'temperature', 'effort', 'system', 'text'];

export function keepChoices() {
  const values = Object.fromEntries(CHOICES.map((id) => [id, find(id).value]));
  const choices = { ...values, compare: find('compare').checked };
  try { sessionStorage.setItem(`${KEY}-choices`, JSON.stringify(choices)); } catch { /* A long draft is lost, no turn is. */ }
}

export function restoreChoices() {
  let choices = {};
  try { choices = JSON.parse(sessionStorage.getItem(`${KEY}-choices`) ?? '{}'); } catch { return; }
  // A link to the chat with a model names the model.
  const isLinked = new URLSearchParams(location.search).has('model');
  for (const id of CHOICES.filter((id) => typeof choices[id] === 'string' && !(isLinked && id === 'model'))) {
    const field = find(id);
    const isOffered = field.tagName !== 'SELECT' || [...field.options].some((option) => option.value === choices[id]);
    if (isOffered) field.value = choices[id];
  }
  find('compare').checked = choices.compare === true;
}
