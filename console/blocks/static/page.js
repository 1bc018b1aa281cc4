// What every page needs: times in the reader's zone, copying, and plots of tables.

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });
// Days are those of UTC, in which the network counts: midnight of UTC is the day before in half of the world.
const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' });
const IS_DAY = /^\d{4}-\d{2}-\d{2}$/;

// Long numbers are grouped as the reader writes them.
const grouped = new Intl.NumberFormat(undefined, { maximumFractionDigits: 6 });
const IS_LONG = /^-?\d{5,15}(\.\d{1,6})?$/;

function localize(root) {
  for (const number of root.querySelectorAll('.number, .credits')) {
    const node = number.firstChild;
    const text = node?.nodeType === Node.TEXT_NODE ? node.data.trim() : '';
    if (IS_LONG.test(text)) node.data = node.data.replace(text, grouped.format(Number(text)));
  }
  for (const time of root.querySelectorAll('time[datetime]')) {
    const date = new Date(time.dateTime);
    if (Number.isNaN(date.valueOf())) continue;
    if (IS_DAY.test(time.dateTime)) {
      time.textContent = day.format(date);
    } else {
      time.textContent = moment.format(date);
      time.title = exact.format(date);
    }
  }
}

// Copies a text. Without TLS, browsers have no clipboard for scripts, and copy what is selected.
async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const before = document.activeElement;
  const field = document.createElement('textarea');
  field.className = 'hidden';
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand('copy');
  field.remove();
  before?.focus({ preventScroll: true });
}

// Makes a button copy what `read` returns, and show that it did. Then `after` is called.
export function copyWith(button, read, done, after = () => {}) {
  const before = button.textContent;
  button.addEventListener('click', async () => {
    await copy(read());
    after();
    button.textContent = done;
    setTimeout(() => { button.textContent = before; }, 1500);
  });
}

function copies(root) {
  for (const button of root.querySelectorAll('button.copy')) {
    const part = (selector) => button.parentElement.querySelector(selector);
    const { done } = button.dataset;
    copyWith(button, () => part('pre').textContent, done, () => { part('[role=status]').textContent = done; });
  }
}

const DAY_S = 86400;

// How an axis names its moments: days of UTC, or times of the reader with the day where it changes.
function names(isDays) {
  const zone = isDays ? { timeZone: 'UTC' } : {};
  const days = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', ...zone });
  const hours = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit', ...zone });
  return (_, splits, __, ___, step) => {
    let last = '';
    return splits.map((at) => {
      const [name, date] = [days.format(at * 1000), new Date(at * 1000)];
      const isNew = name !== last;
      last = name;
      if (isDays || step >= DAY_S) return isNew ? name : '';
      return isNew ? `${hours.format(date)}\n${name}` : hours.format(date);
    });
  };
}

const drawn = new WeakMap();

// A plot shows the table beside it, so that there is one source and a text for who cannot see it.
function draw(figure) {
  const rows = [...figure.querySelectorAll('tbody tr')];
  if (rows.length === 0 || typeof uPlot === 'undefined') return;
  drawn.get(figure)?.();
  const [about, ...columns] = [...figure.querySelectorAll('thead th')].map((cell) => cell.textContent);
  const times = rows.map((row) => new Date(row.querySelector('time').dateTime).valueOf() / 1000);
  const values = columns.map((_, at) => rows.map((row) => Number(row.querySelectorAll('td[data-value]')[at].dataset.value)));
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const isBars = figure.dataset.bars === 'true';
  const isDays = figure.dataset.days === 'true';
  // Bars of one moment stand on each other: the sums are drawn, the highest first, and the values are shown.
  const sums = isBars ? values.reduce((all, series) => {
    const last = all.at(-1);
    return [...all, series.map((value, at) => value + (last ? last[at] : 0))];
  }, []) : values;
  const order = columns.map((_, at) => at);
  if (isBars) order.reverse();
  const series = order.map((at) => ({
    label: columns[at],
    stroke: color(`--plot-${at % 6}`),
    fill: isBars ? color(`--plot-${at % 6}`) : undefined,
    width: isBars ? 0 : 2,
    paths: isBars ? uPlot.paths.bars({ size: [0.7, 48] }) : undefined,
    points: { show: !isBars && rows.length < 40 },
    value: (_, __, ___, index) => (index === null ? '–' : String(+values[at][index].toFixed(4))),
  }));
  const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line') } };
  const time = { ...axis, space: 72, values: names(isDays), ...(isDays && { incrs: [1, 2, 3, 7, 14, 28].map((days) => days * DAY_S) }) };
  const written = isDays ? day : moment;
  // Half of a step, so that bars at the ends are whole; a day around a single moment, around which uPlot would show years.
  const steps = times.slice(1).map((time, at) => time - times[at]);
  const edge = isBars && steps.length > 0 ? Math.min(...steps) / 2 : 0;
  const range = steps.length === 0
    ? () => [times[0] - DAY_S / 2, times[0] + DAY_S / 2]
    : (_, least, most) => [least - edge, most + edge];
  const place = figure.querySelector('.canvas');
  place.replaceChildren();
  const plot = new uPlot({
    width: place.clientWidth,
    height: 240,
    scales: { x: { range }, y: { range: (_, least, most) => [Math.min(0, least), most > 0 ? most * 1.1 : 1] } },
    series: [{ label: about, value: (_, at) => (at == null ? '–' : written.format(at * 1000)) }, ...series],
    axes: [time, { ...axis, size: 60 }],
    ...(isDays && { tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC') }),
  }, [times, ...order.map((at) => sums[at])], place);
  const observer = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 240 }));
  observer.observe(place);
  drawn.set(figure, () => { observer.disconnect(); plot.destroy(); });
}

export function prepare(root) {
  localize(root);
  copies(root);
  root.querySelectorAll('figure.plot').forEach(draw);
}

prepare(document);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => document.querySelectorAll('figure.plot').forEach(draw));

// What was done is shown once: a reload, or a copy of the address, does not show it again.
const address = new URL(location.href);
if (address.searchParams.has('done')) {
  address.searchParams.delete('done');
  history.replaceState(history.state, '', address);
}

// What pages keep in this tab, such as a conversation, is its reader's alone.
document.addEventListener('submit', (event) => {
  if (event.target.getAttribute('action') !== '/console/sign-out') return;
  sessionStorage.clear();
  addEventListener('pagehide', () => sessionStorage.clear());
});

// What was refused comes first.
document.querySelector('main [aria-invalid=true]')?.focus();

// A field in a closed part of a form could not be shown where it is wrong, and the form would not be sent.
document.addEventListener('invalid', (event) => {
  const details = event.target.closest('details');
  if (details) details.open = true;
}, true);

// A list that may change is read again: soon after it changed, ever later while it does not, and not while nobody sees it.
const [SHORTEST_MS, LONGEST_MS] = [5000, 60000];

// Shows that the list is not read again, and where a session begins.
function end(list) {
  const notice = document.createElement('p');
  notice.className = 'notice warn';
  notice.setAttribute('role', 'status');
  const link = document.createElement('a');
  link.href = `/console/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = list.dataset.textSignIn;
  notice.append(`${list.dataset.textEnded} `, link);
  list.before(notice);
}

function refresh(id) {
  const list = () => document.getElementById(id);
  let [before, wait, isEnded] = [list().textContent, SHORTEST_MS, false];
  const later = () => { wait = Math.min(wait * 1.5, LONGEST_MS); };
  document.addEventListener('htmx:after:swap', () => {
    localize(document);
    const now = list()?.textContent;
    if (now === before) later();
    else wait = SHORTEST_MS;
    before = now;
  });
  // A coordinator that is away or refuses gets fewer requests, as one whose list does not change.
  document.addEventListener('htmx:error', later);
  document.addEventListener('htmx:response:error', (event) => {
    later();
    if (event.detail.ctx?.response?.status === 401 && !isEnded) {
      isEnded = true;
      end(list());
    }
  });
  const next = () => setTimeout(tick, wait * (0.75 + Math.random() / 2));
  function tick() {
    if (isEnded) return;
    if (document.hidden) {
      document.addEventListener('visibilitychange', tick, { once: true });
      return;
    }
    list()?.dispatchEvent(new Event('refresh'));
    next();
  }
  next();
}

for (const list of document.querySelectorAll('[hx-trigger="refresh"]')) refresh(list.id);
