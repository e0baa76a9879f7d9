// Values of compared runs as columns, scales of their axes, and a colour for each number.

// Viridis, without its ends that have too little contrast with the page: in both themes the colours
// differ in lightness too, so people who are colour-blind can tell them apart.
const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const PART = { light: [0, 0.6], dark: [0.35, 1] };
const ODD = ["NaN", "Infinity", "-Infinity"];

// A column: `values` are numbers, or places in `categories`, and null where there is none to draw;
// `texts` are what was logged, and null where nothing was.
function column(id, label, texts, isMetric) {
  const given = texts.filter((text) => text !== null);
  const isNumber = isMetric || given.every((text) => text.trim() !== "" && Number.isFinite(Number(text)));
  const categories = isNumber ? [] : [...new Set(given)].sort();
  const values = texts.map((text) => {
    if (text === null) return null;
    if (!isNumber) return categories.indexOf(text);
    const value = Number(text);
    return Number.isFinite(value) ? value : null;
  });
  return { id, label, isMetric, isNumber, categories, texts, values, given: values.filter((value) => value !== null).length };
}

export function columnsOf(compared) {
  const read = (values, name) => (values[name] === undefined ? null : String(values[name]));
  return [
    ...compared.differing_params.map((name) => column(`p:${name}`, name, compared.runs.map((run) => read(run.params, name)), false)),
    ...compared.metrics.map((name) => column(`m:${name}`, name, compared.runs.map((run) => read(run.metrics, name)), true)),
  ];
}

// Columns to begin with: what most runs have, parameters before metrics, nothing about the machine.
export function usual(columns, params, metrics) {
  const most = (all, count) => [...all].sort((a, b) => b.given - a.given).slice(0, count);
  const own = columns.filter((it) => !/^(system\/|slipway\.|mlflow\.)/.test(it.label) && it.given > 1);
  return [...most(own.filter((it) => !it.isMetric), params), ...most(own.filter((it) => it.isMetric), metrics)];
}

export const shown = (text) => (text === null ? "not logged" : ODD.includes(text) ? text.replace("Infinity", "∞") : text);

// Whether a value has a place on the axis of its column.
export const hasPlace = (value, isLog) => value !== null && !(isLog && value <= 0);

// The scale of a column: from a value to 0…1 and back, and where its ticks are.
export function scaleOf(column, isLog) {
  if (!column.isNumber) {
    const last = Math.max(1, column.categories.length - 1);
    return { at: (value) => (column.categories.length === 1 ? 0.5 : value / last), back: (part) => part * last, ticks: column.categories.map((_, at) => at) };
  }
  const values = column.values.filter((value) => hasPlace(value, isLog));
  let [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : isLog ? [1, 10] : [0, 1];
  if (low === high) [low, high] = isLog ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const [first, last] = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
  // Halves first: the difference of two finite numbers may be too large for a number.
  const width = last / 2 - first / 2;
  return {
    at: (value) => ((isLog ? Math.log10(value) : value) / 2 - first / 2) / width,
    back: (part) => {
      const value = first + 2 * width * part;
      return isLog ? 10 ** value : value;
    },
    ticks: isLog ? powers(low, high) : rounded(low, high),
  };
}

function powers(low, high) {
  const ticks = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.floor(Math.log10(high)); power += 1) ticks.push(10 ** power);
  const step = Math.ceil(ticks.length / 6);
  return ticks.length > 1 ? ticks.filter((_, at) => at % step === 0) : [low, high];
}

function rounded(low, high) {
  const rough = (high / 4 - low / 4) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high && ticks.length < 12; tick += step) ticks.push(Number(tick.toPrecision(12)));
  return ticks.length ? ticks : [low, high];
}

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// The colour at 0…1 of the scale for numbers, in the theme of the page.
export function shade(part) {
  const [start, end] = PART[document.documentElement.dataset.bsTheme === "dark" ? "dark" : "light"];
  const place = (start + (end - start) * Math.min(1, Math.max(0, part))) * (VIRIDIS.length - 1);
  const at = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const [from, to] = [channels(VIRIDIS[at]), channels(VIRIDIS[at + 1])];
  return `rgb(${from.map((value, n) => Math.round(value + (to[n] - value) * (place - at))).join(", ")})`;
}

export function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...content);
  return made;
}

// The numbers behind a chart, for those who do not see it.
export function fillTable(table, runs, columns) {
  const head = element("tr", {}, ...["Run", ...columns.map((it) => it.label)].map((text) => element("th", { scope: "col" }, text)));
  const rows = runs.map((run) => element("tr", {},
    element("th", { scope: "row" }, element("a", { href: run.url }, run.name)),
    ...columns.map((it) => element("td", { class: it.isNumber ? "cell-number" : "cell-value" }, shown(it.texts[run.at])))));
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

export function fillSelect(select, columns, value, none) {
  select.replaceChildren(...(none ? [new Option(none, "")] : []), ...columns.map((it) => new Option(it.label + (it.isMetric ? "" : " (parameter)"), it.id)));
  select.value = value;
}
