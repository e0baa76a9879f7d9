// Curves of metrics of one run or several: followed live, smoothed, zoomed, grouped. The address of
// the page carries all settings, so that a link shows what its sender saw.
import { chartOf, dropChart, endOf, palette, resizeCharts, swatch, write } from "./charts.js";
import { areSingle, barOptions } from "./curves_bars.js";
import { drawLegend } from "./curves_legend.js";
import { groupSeries, runSeries, undrawn } from "./curves_series.js";
import { zoomable } from "./curves_zoom.js";

const EVERY_MS = 2000;
const EVERY_LISTED_MS = 10_000;
const POINTS = 600;
const FEWER_POINTS = 120;
const CROWD = 20;
const MOST_CHARTS = 24;
const CHARTS_LISTED = 2;
const MOST_IN_TOOLTIP = 15;
const EPOCH = "epoch";
const AXES = ["step", "epoch", "since", "time"];
const SETTINGS = ["metric", "x", "smooth", "ylog", "xlog", "by", "base", "hide", "pin", "zoom"];
const ODD = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };

const section = document.getElementById("curves");
const json = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "[]");
let runs = readRuns();
let byId = new Map(runs.map((run) => [run.id, run]));
let offered = json("curves-metrics");
const settings = fromAddress();
let overview = [];
let detail = [];
let epochs = new Map();
let timer = 0;

const control = (name) => section.querySelector(`[data-${name}]`);
const figures = () => [...section.querySelectorAll("figure[data-key]")];

function readRuns() {
  return json("curves-runs").map((run, at) => ({ ...run, at, name: run.name || run.id }));
}

function fromAddress() {
  const query = new URLSearchParams(location.search);
  const smooth = Number(query.get("smooth"));
  const zoom = (query.get("zoom") ?? "").split("~").map(Number);
  return {
    metrics: query.getAll("metric").filter((key) => offered.includes(key)).slice(0, MOST_CHARTS),
    x: AXES.includes(query.get("x")) ? query.get("x") : "step",
    smooth: smooth > 0 && smooth < 1 ? smooth : 0,
    log: query.get("ylog") === "1",
    xlog: query.get("xlog") === "1",
    group: query.get("by") ?? "",
    base: query.get("base") ?? "",
    hide: new Set(query.getAll("hide")),
    pin: new Set(query.getAll("pin")),
    zoom: zoom.length === 2 && zoom.every(Number.isFinite) ? zoom : null,
  };
}

function toAddress() {
  const query = new URLSearchParams(location.search);
  SETTINGS.forEach((name) => query.delete(name));
  settings.metrics.forEach((key) => query.append("metric", key));
  if (settings.x !== "step") query.set("x", settings.x);
  if (settings.smooth) query.set("smooth", String(settings.smooth));
  if (settings.log) query.set("ylog", "1");
  if (settings.xlog) query.set("xlog", "1");
  if (settings.group) query.set("by", settings.group);
  if (settings.base) query.set("base", settings.base);
  settings.hide.forEach((id) => query.append("hide", id));
  settings.pin.forEach((id) => query.append("pin", id));
  if (settings.zoom) query.set("zoom", settings.zoom.map(write).join("~"));
  const list = document.querySelector("[data-runs-charts]");
  query.delete("charts");
  if (list && !list.open) query.set("charts", "0");
  fillForm(query);
  const text = query.toString();
  history.replaceState(history.state, "", text ? `?${text}` : location.pathname);
  document.dispatchEvent(new CustomEvent("slipway:address"));
}

// A list keeps the settings of its charts when its filters change.
function fillForm(query) {
  document.querySelector("[data-curves-fields]")?.replaceChildren(...[...query].filter(([name]) => name === "charts" || SETTINGS.includes(name)).map(([name, value]) => {
    const field = document.createElement("input");
    [field.type, field.name, field.value] = ["hidden", name, value];
    return field;
  }));
}

// The runs in groups of one value of a parameter, or null where they are not grouped.
function groupsOf(visible) {
  if (!settings.group) return null;
  const groups = new Map();
  for (const run of visible) {
    const value = run.params?.[settings.group];
    const label = `${settings.group} ${value === undefined ? "not set" : value}`;
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(run);
  }
  return groups;
}

// The points of the zoomed part, and one beyond each edge, so that lines go on there.
function effective(curve) {
  const zoomed = settings.zoom && detail.find((other) => other.run === curve.run && other.key === curve.key);
  if (!zoomed) return curve;
  const place = settings.x === "time" ? (point) => point.at_ms : (point) => point.step;
  const before = curve.points.filter((point) => place(point) < settings.zoom[0]).at(-1);
  const after = curve.points.find((point) => place(point) > settings.zoom[1]);
  return { ...zoomed, points: [before, ...zoomed.points, after].filter(Boolean) };
}

function seriesOf(key, colours) {
  const visible = runs.filter((run) => !settings.hide.has(run.id));
  const curves = overview.filter((curve) => curve.key === key && byId.has(curve.run)).map(effective);
  const groups = groupsOf(visible);
  if (groups) {
    return [...groups].flatMap(([label, members], at) => {
      const ids = new Set(members.map((run) => run.id));
      return groupSeries(label, at, curves.filter((curve) => ids.has(curve.run)), settings, (id) => epochs.get(id), colours);
    });
  }
  const drawn = curves.filter((curve) => !settings.hide.has(curve.run));
  return drawn.flatMap((curve) => runSeries(curve, byId.get(curve.run), settings, epochs.get(curve.run), colours, drawn.length > CROWD));
}

// What the pointer is at: the place on the axis, then all values there, the highest first.
function readout(entries) {
  const box = document.createElement("div");
  const head = document.createElement("div");
  const x = entries[0]?.axisValue;
  head.textContent = settings.x === "time" ? new Date(x).toLocaleString() : `${settings.x === "since" ? "Seconds" : settings.x} ${write(x)}`;
  head.className = "curves-readout-head";
  box.append(head);
  const ending = settings.group ? ":mean" : settings.smooth ? ":smooth" : ":raw";
  const lines = entries.filter((entry) => entry.seriesId.endsWith(ending)).sort((a, b) => b.value[1] - a.value[1]);
  const base = lines.find((entry) => entry.seriesId === `${settings.base}${ending}`)?.value[1];
  for (const entry of lines.slice(0, MOST_IN_TOOLTIP)) {
    const line = document.createElement("div");
    line.className = "curves-readout-line";
    const dot = document.createElement("span");
    dot.className = "curves-dot";
    dot.style.background = entry.color;
    const name = document.createElement("span");
    name.textContent = entry.seriesName;
    name.className = "curves-readout-name";
    const value = document.createElement("strong");
    const difference = entry.value[1] - base;
    value.textContent = write(entry.value[1]) + (base === undefined || entry.seriesId === `${settings.base}${ending}` ? "" : ` (${difference < 0 ? "−" : "+"}${write(Math.abs(difference))})`);
    line.append(dot, name, value);
    box.append(line);
  }
  if (lines.length > MOST_IN_TOOLTIP) box.append(`${lines.length - MOST_IN_TOOLTIP} lower values`);
  return box;
}

function options(key, colours) {
  const isTime = settings.x === "time";
  const since = settings.x === "since" ? "{value} s" : null;
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 26, top: 16, bottom: 4, containLabel: true },
    xAxis: {
      type: isTime ? "time" : settings.xlog ? "log" : "value",
      scale: true,
      min: settings.zoom?.[0],
      max: settings.zoom?.[1],
      axisLine: { lineStyle: { color: colours.line } },
      splitLine: { show: false },
      axisLabel: { color: colours.text, hideOverlap: true, showMinLabel: !settings.zoom, showMaxLabel: !settings.zoom, formatter: isTime ? { hour: "{HH}:{mm}", minute: "{HH}:{mm}", second: "{HH}:{mm}:{ss}" } : since },
    },
    yAxis: {
      type: settings.log ? "log" : "value",
      scale: true,
      max: settings.log ? null : endOf(key),
      splitNumber: 4,
      splitLine: { lineStyle: { color: colours.line } },
      axisLabel: { color: colours.text, formatter: write },
    },
    tooltip: {
      trigger: "axis",
      backgroundColor: colours.surface,
      borderColor: colours.line,
      textStyle: { color: colours.body },
      formatter: readout,
      confine: true,
    },
    axisPointer: { snap: true, lineStyle: { color: colours.text } },
    series: seriesOf(key, colours),
  };
}

function noteUndrawn(figure, sentences) {
  let note = figure.querySelector("[data-left-out]");
  if (!note) {
    if (!sentences) return;
    note = document.createElement("p");
    note.className = "text-secondary small mb-0";
    note.dataset.leftOut = "";
    figure.append(note);
  }
  note.textContent = sentences;
  note.hidden = !sentences;
}

// The numbers behind a chart, for those who do not see it.
function fillTable(figure, curves) {
  const rows = curves.map((curve) => {
    const numbers = curve.points.map((point) => point.value).filter((value) => typeof value === "number");
    const cells = [byId.get(curve.run).name, curve.total, ...(numbers.length ? [numbers[0], numbers.at(-1), Math.min(...numbers), Math.max(...numbers)] : ["", "", "", ""])];
    const row = document.createElement("tr");
    cells.forEach((cell, at) => {
      const box = document.createElement(at ? "td" : "th");
      if (!at) box.scope = "row";
      box.textContent = typeof cell === "number" ? write(cell) : cell;
      if (at) box.className = "cell-number";
      row.append(box);
    });
    return row;
  });
  figure.querySelector("[data-values]").replaceChildren(...rows);
}

function draw() {
  if (!window.echarts) return;
  const colours = palette(section);
  const legend = control("legend");
  if (legend) {
    const groups = groupsOf(runs);
    [...(groups ?? [])].forEach(([, members], at) => members.forEach((run) => { run.colourAt = at; }));
    if (!groups) runs.forEach((run) => { run.colourAt = run.at; });
    drawLegend(legend, runs, settings, colours, changed);
  }
  for (const place of document.querySelectorAll("[data-run-swatch]")) {
    const run = byId.get(place.dataset.runSwatch);
    place.replaceChildren(...(run ? [swatch(colours, run.colourAt ?? run.at)] : []));
  }
  for (const figure of figures()) {
    const key = figure.dataset.key;
    const curves = overview.filter((curve) => curve.key === key && byId.has(curve.run) && !settings.hide.has(curve.run)).map(effective);
    const element = figure.querySelector(".chart");
    const isBars = !settings.group && areSingle(curves) && !(settings.log && curves.some((curve) => curve.points[0].value <= 0));
    if (isBars) element.dataset.bars = "";
    else delete element.dataset.bars;
    chartOf(element).setOption(isBars ? barOptions(curves, (id) => byId.get(id), settings, colours) : options(key, colours), true);
    const last = curves.length === 1 ? curves[0].points.at(-1)?.value : undefined;
    const total = curves.reduce((sum, curve) => sum + curve.total, 0);
    const value = last === undefined ? "" : ` ${write(last in ODD ? String(last) : last)}`;
    figure.querySelector("[data-value]").textContent = value;
    element.setAttribute("aria-label", `${key}, ${total} points;${value || ` ${curves.length} curves`}`);
    element.dataset.total = String(total);
    const without = settings.x === "epoch" ? curves.filter((curve) => !epochs.get(curve.run)?.length).length : 0;
    const lacking = without ? `${without} run${without === 1 ? "" : "s"} without a metric “epoch” cannot be drawn. ` : "";
    noteUndrawn(figure, lacking + undrawn(curves, settings));
    fillTable(figure, curves);
  }
  control("zoom-reset").hidden = !settings.zoom;
}

async function fetchCurves(keys, span) {
  const points = runs.length > CROWD ? FEWER_POINTS : POINTS;
  const query = new URLSearchParams({ points: String(points), axis: settings.x === "time" || settings.x === "since" ? "time" : "step" });
  for (const run of runs) query.append("run", run.id);
  for (const key of keys) query.append("key", key);
  if (span) {
    query.set("start", String(Math.floor(span[0])));
    query.set("end", String(Math.ceil(span[1])));
  }
  const answer = await fetch(`${section.dataset.curves}?${query}`, { headers: { Accept: "application/json" } });
  return answer.ok ? answer.json() : null;
}

async function refresh() {
  const keys = figures().map((figure) => figure.dataset.key);
  if (!keys.length || !runs.length) return;
  try {
    const all = await fetchCurves(settings.x === "epoch" ? [...new Set([...keys, EPOCH])] : keys);
    if (!all) return;
    const zoomed = settings.zoom && (settings.x === "step" || settings.x === "time") ? await fetchCurves(keys, settings.zoom) : [];
    overview = all;
    detail = zoomed ?? [];
    epochs = new Map(all.filter((curve) => curve.key === EPOCH).map((curve) => [curve.run, curve.points.filter((point) => typeof point.value === "number").map((point) => [point.step, point.value])]));
    draw();
  } catch {
    // The next time may do better; the page says elsewhere that the portal does not answer.
  }
}

function changed() {
  toAddress();
  draw();
}

function changedData() {
  toAddress();
  refresh();
}

const zoom = {
  range() {
    const figure = figures().find((it) => it.querySelector(".chart").dataset.bars === undefined);
    if (!figure) return null;
    const scale = chartOf(figure.querySelector(".chart")).getModel().getComponent("xAxis", 0).axis.scale.getExtent();
    return settings.zoom ?? (settings.xlog ? scale.map((edge) => 10 ** edge) : scale);
  },
  set(range) {
    settings.zoom = range && range[1] > range[0] ? range : null;
    changedData();
  },
  by(factor) {
    const range = this.range();
    if (!range) return;
    const [middle, half] = [(range[0] + range[1]) / 2, ((range[1] - range[0]) / 2) * factor];
    this.set([middle - half, middle + half]);
  },
};

// Charts of the selected metrics, in their order.
function arrange() {
  const box = section.querySelector("[data-charts]");
  const shown = new Map(figures().map((figure) => [figure.dataset.key, figure]));
  for (const [key, figure] of shown) {
    if (settings.metrics.includes(key)) continue;
    dropChart(figure.querySelector(".chart"));
    figure.remove();
  }
  for (const key of settings.metrics) {
    let figure = shown.get(key);
    if (!figure) {
      figure = document.getElementById("curves-figure").content.firstElementChild.cloneNode(true);
      figure.dataset.key = key;
      figure.querySelector("[data-title]").textContent = key;
      zoomable(figure.querySelector(".chart"), zoom);
    }
    box.append(figure);
  }
}

function listMetrics() {
  const list = control("metrics");
  if (!list) return;
  list.replaceChildren(...offered.map((key) => {
    const item = document.createElement("li");
    const label = document.createElement("label");
    label.className = "form-check";
    const box = document.createElement("input");
    box.type = "checkbox";
    box.className = "form-check-input";
    box.checked = settings.metrics.includes(key);
    box.addEventListener("change", () => {
      settings.metrics = box.checked ? [...settings.metrics, key].slice(-MOST_CHARTS) : settings.metrics.filter((other) => other !== key);
      listMetrics();
      arrange();
      changedData();
    });
    const name = document.createElement("span");
    name.className = "form-check-label";
    name.textContent = key;
    label.append(box, name);
    item.append(label);
    return item;
  }));
}

// Metrics that a run has logged since the page was opened get charts of their own.
async function addMetrics() {
  const answer = await fetch(section.dataset.run, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const added = Object.keys((await answer.json()).metrics).filter((key) => !offered.includes(key));
  if (!added.length) return;
  offered.push(...added);
  settings.metrics = [...settings.metrics, ...added].slice(0, MOST_CHARTS);
  section.hidden = false;
  document.getElementById("no-metrics")?.remove();
  listMetrics();
  arrange();
}

// New values of a run that is active are fetched until it ends.
async function follow() {
  const status = document.getElementById("run-figures")?.dataset.status;
  const ended = status && status !== "RUNNING";
  if (ended) clearInterval(timer);
  if (document.hidden && !ended) return;
  if (section.dataset.run) await addMetrics().catch(() => {}); // the next time may do better
  refresh();
}

// The runs of a list after its rows were replaced.
function replaceRuns() {
  const before = JSON.stringify([runs.map((run) => run.id), offered]);
  runs = readRuns();
  byId = new Map(runs.map((run) => [run.id, run]));
  offered = json("curves-metrics");
  if (before === JSON.stringify([runs.map((run) => run.id), offered])) {
    draw();
    return;
  }
  const known = settings.metrics.filter((key) => offered.includes(key));
  settings.metrics = known.length ? known : offered.slice(0, CHARTS_LISTED);
  overview = [];
  detail = [];
  listMetrics();
  arrange();
  refresh();
}

function bind() {
  const set = (name, property, read, act) => {
    const input = control(name);
    if (!input) return;
    if (input.type === "checkbox") input.checked = settings[property];
    else input.value = String(settings[property]);
    if (input.type === "range") {
      input.addEventListener("input", () => {
        settings[property] = read(input);
        draw();
      });
    }
    input.addEventListener("change", () => {
      settings[property] = read(input);
      act();
    });
  };
  const rescale = () => {
    settings.zoom = null; // the ends of the old axis mean nothing on the new one
    changedData();
  };
  set("smoothing", "smooth", (input) => Number(input.value), changed);
  set("log", "log", (input) => input.checked, changed);
  set("log-x", "xlog", (input) => input.checked, changed);
  set("axis", "x", (input) => input.value, rescale);
  set("group", "group", (input) => input.value, changed);
  control("zoom-in").addEventListener("click", () => zoom.by(0.5));
  control("zoom-out").addEventListener("click", () => zoom.by(2));
  control("zoom-reset").addEventListener("click", () => zoom.set(null));
}

if (section) {
  fillForm(new URLSearchParams(location.search));
  if (!settings.metrics.length) settings.metrics = figures().map((figure) => figure.dataset.key);
  figures().forEach((figure) => zoomable(figure.querySelector(".chart"), zoom));
  bind();
  listMetrics();
  arrange();
  refresh();
  if (section.dataset.live === "yes") timer = setInterval(follow, runs.length > 1 ? EVERY_LISTED_MS : EVERY_MS);
  const list = document.getElementById("runs-rows");
  if (list) new MutationObserver((records) => records.some((record) => [...record.addedNodes].some((node) => node.id === "runs-rows")) && replaceRuns()).observe(list.parentElement, { childList: true });
  document.querySelector("[data-runs-charts]")?.addEventListener("toggle", toAddress);
  // The answer to a filter replaces the address by that of its request, which may be older.
  if (list) document.addEventListener("htmx:after:history:update", toAddress);
  document.addEventListener("slipway:baseline", (event) => {
    settings.base = event.detail;
    changed();
  });
  document.addEventListener("slipway:values", draw); // its columns have the lines of the runs
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new ResizeObserver(resizeCharts).observe(section);
}
