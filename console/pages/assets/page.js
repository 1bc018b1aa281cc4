// What every page needs: times in the reader's zone, copying, and plots of tables.

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });

function localize(root) {
  for (const time of root.querySelectorAll('time[datetime]')) {
    const date = new Date(time.dateTime);
    if (!Number.isNaN(date.valueOf())) {
      time.textContent = moment.format(date);
      time.title = exact.format(date);
    }
  }
}

function copies(root) {
  for (const button of root.querySelectorAll('button.copy')) {
    button.addEventListener('click', async () => {
      const text = button.parentElement.querySelector('pre').textContent;
      await navigator.clipboard.writeText(text);
      const before = button.textContent;
      button.textContent = button.dataset.done;
      setTimeout(() => { button.textContent = before; }, 1500);
    });
  }
}

// A plot shows the table beside it, so that there is one source and a text for who cannot see it.
function draw(figure) {
  const rows = [...figure.querySelectorAll('tbody tr')];
  if (rows.length === 0 || typeof uPlot === 'undefined') return;
  const names = [...figure.querySelectorAll('thead th')].map((cell) => cell.textContent).slice(1);
  const times = rows.map((row) => new Date(row.querySelector('time').dateTime).valueOf() / 1000);
  const values = names.map((_, at) => rows.map((row) => Number(row.querySelectorAll('td[data-value]')[at].dataset.value)));
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const isBars = figure.dataset.bars === 'true';
  // Bars of one moment stand on each other: the sums are drawn, the highest first, and the values are shown.
  const sums = isBars ? values.reduce((all, series) => {
    const last = all.at(-1);
    return [...all, series.map((value, at) => value + (last ? last[at] : 0))];
  }, []) : values;
  const order = names.map((_, at) => at);
  if (isBars) order.reverse();
  const series = order.map((at) => ({
    label: names[at],
    stroke: color(`--plot-${at % 6}`),
    fill: isBars ? color(`--plot-${at % 6}`) : undefined,
    width: isBars ? 0 : 2,
    paths: isBars ? uPlot.paths.bars({ size: [0.7, 48] }) : undefined,
    points: { show: !isBars && rows.length < 40 },
    value: (_, __, ___, index) => (index === null ? '–' : String(+values[at][index].toFixed(4))),
  }));
  const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line') } };
  // Half of a step, so that bars at the ends are whole; a day around a single moment.
  const steps = times.slice(1).map((time, at) => time - times[at]);
  const edge = steps.length === 0 ? 43200 : isBars ? Math.min(...steps) / 2 : 0;
  const place = figure.querySelector('.canvas');
  place.replaceChildren();
  const plot = new uPlot({
    width: place.clientWidth,
    height: 240,
    scales: { x: { range: (_, least, most) => [least - edge, most + edge] }, y: { range: (_, least, most) => [Math.min(0, least), most > 0 ? most * 1.1 : 1] } },
    series: [{}, ...series],
    axes: [axis, { ...axis, size: 60 }],
  }, [times, ...order.map((at) => sums[at])], place);
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 240 })).observe(place);
}

export function prepare(root) {
  localize(root);
  copies(root);
  root.querySelectorAll('figure.plot').forEach(draw);
}

prepare(document);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => document.querySelectorAll('figure.plot').forEach(draw));

// A list that may change is read again: soon after it changed, ever later while it does not, and not while nobody sees it.
const [SHORTEST_MS, LONGEST_MS] = [5000, 60000];

function refresh(id) {
  const list = () => document.getElementById(id);
  let [before, wait] = [list().textContent, SHORTEST_MS];
  document.addEventListener('htmx:after:swap', () => {
    localize(document);
    const now = list()?.textContent;
    wait = now === before ? Math.min(wait * 1.5, LONGEST_MS) : SHORTEST_MS;
    before = now;
  });
  const next = () => setTimeout(tick, wait * (0.75 + Math.random() / 2));
  function tick() {
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
