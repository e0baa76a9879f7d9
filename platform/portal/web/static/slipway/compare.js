// Relations between values of compared runs: parallel coordinates and a scatter plot. The address of
// the page carries their axes, scales, brushes and colours.
import { palette, resizeCharts } from "./charts.js";
import { columnsOf, usual } from "./compare_data.js";
import { Parallel, selectionOf } from "./compare_parallel.js";
import { Scatter } from "./compare_scatter.js";

const MOST_AXES = 20;
const [USUAL_PARAMS, USUAL_METRICS] = [4, 3];
const NAMES = ["axis", "alog", "brush", "colour", "sx", "sy", "scolour", "sxlog", "sylog"];
const section = document.getElementById("relations");

// A brush in the address is JSON: the column, then its two limits or its categories.
function brushOf(text, byId) {
  try {
    const [id, ...values] = JSON.parse(text);
    const column = byId.get(id);
    if (!column || !values.length) return null;
    if (column.isNumber) return values.length === 2 && values.every(Number.isFinite) && values[0] <= values[1] ? [id, values] : null;
    const known = values.filter((value) => column.categories.includes(value));
    return known.length ? [id, known] : null;
  } catch {
    return null; // an address that nobody can read brushes nothing
  }
}

function fromAddress(columns) {
  const query = new URLSearchParams(location.search);
  const byId = new Map(columns.map((it) => [it.id, it]));
  const known = (id) => (byId.has(id) ? id : null);
  const first = usual(columns, USUAL_PARAMS, USUAL_METRICS);
  const fallback = first.length ? first : columns.slice(0, 1);
  const metric = fallback.find((it) => it.isMetric);
  const axes = [...new Set(query.getAll("axis"))].filter(known).slice(0, MOST_AXES);
  return {
    parallel: {
      axes: axes.length ? axes : fallback.map((it) => it.id),
      logs: new Set(query.getAll("alog").filter(known)),
      brushes: new Map(query.getAll("brush").map((text) => brushOf(text, byId)).filter(Boolean)),
      colour: query.has("colour") ? known(query.get("colour")) ?? "" : metric?.id ?? "",
    },
    scatter: {
      x: known(query.get("sx")) ?? fallback[0].id,
      y: known(query.get("sy")) ?? (metric ?? fallback.at(-1)).id,
      colour: known(query.get("scolour")) ?? "",
      xlog: query.get("sxlog") === "1",
      ylog: query.get("sylog") === "1",
    },
  };
}

function toAddress({ parallel, scatter }) {
  const query = new URLSearchParams(location.search);
  NAMES.forEach((name) => query.delete(name));
  parallel.axes.forEach((id) => query.append("axis", id));
  parallel.logs.forEach((id) => query.append("alog", id));
  parallel.brushes.forEach((values, id) => query.append("brush", JSON.stringify([id, ...values])));
  query.set("colour", parallel.colour);
  query.set("sx", scatter.x);
  query.set("sy", scatter.y);
  if (scatter.colour) query.set("scolour", scatter.colour);
  if (scatter.xlog) query.set("sxlog", "1");
  if (scatter.ylog) query.set("sylog", "1");
  history.replaceState(history.state, "", `?${query}`);
}

function start(compared, listed) {
  const urls = new Map(listed.map((run) => [run.id, run.url]));
  const runs = compared.runs.map((run, at) => ({ id: run.id, name: run.name || run.id, url: urls.get(run.id), at }));
  const columns = columnsOf(compared);
  if (!columns.length) {
    section.hidden = true;
    return;
  }
  const state = fromAddress(columns);
  const byId = new Map(columns.map((it) => [it.id, it]));
  const changed = () => {
    toAddress(state);
    draw();
  };
  const parallel = new Parallel(section, runs, columns, state.parallel, changed);
  const scatter = new Scatter(section, runs, columns, state.scatter, changed);
  function draw() {
    if (!window.echarts) return;
    const colours = palette(section);
    parallel.draw(colours);
    scatter.draw(colours, selectionOf(state.parallel, byId, runs));
    section.dataset.drawn = String(runs.length);
  }
  draw();
  let width = section.clientWidth;
  new ResizeObserver(() => {
    if (section.clientWidth === width) return;
    width = section.clientWidth;
    resizeCharts();
    draw();
  }).observe(section);
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
}

async function load() {
  const listed = JSON.parse(document.getElementById("curves-runs").textContent);
  const query = new URLSearchParams(listed.map((run) => ["run", run.id]));
  const answer = await fetch(`${section.dataset.compare}?${query}`, { headers: { Accept: "application/json" } });
  if (answer.ok) start(await answer.json(), listed);
}

if (section) load().catch((error) => console.warn("The charts of relations cannot be drawn.", error)); // the table above has the same values
