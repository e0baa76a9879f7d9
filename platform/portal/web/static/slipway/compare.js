// Runs side by side: parallel coordinates of what differs, and any two values against each other.
import { chartOf, colour, dash, palette } from "./charts.js";

const MOST_AXES = 12;
const section = document.getElementById("relations");
let found = null;

// A value of a run as a number where all are numbers, as text otherwise.
function columns() {
  const names = [
    ...found.differing_params.map((name) => ({ label: name, of: (run) => run.params[name] })),
    ...found.metrics.map((name) => ({ label: name, of: (run) => run.metrics[name] })),
  ];
  return names.map((column) => {
    const values = found.runs.map(column.of);
    const given = values.filter((value) => value !== undefined);
    const isNumber = given.every((value) => value !== "" && Number.isFinite(Number(value)));
    return { ...column, isNumber, values: values.map((value) => (value === undefined ? null : isNumber ? Number(value) : String(value))) };
  });
}

function say(id, words) {
  const note = document.getElementById(id);
  note.textContent = words;
  note.hidden = !words;
}

function drawParallel(all, colours) {
  const shown = all.slice(0, MOST_AXES);
  const others = all.length - shown.length;
  say("parallel-left-out", others ? `${others} more value${others === 1 ? " has" : "s have"} no axis here.` : "");
  const axes = shown.map((column, at) => ({
    dim: at,
    name: column.label,
    type: column.isNumber ? "value" : "category",
    scale: true,
    data: column.isNumber ? undefined : [...new Set(column.values.filter((value) => value !== null))],
    nameTextStyle: { color: colours.text },
    axisLabel: { color: colours.text },
    axisLine: { lineStyle: { color: colours.line } },
  }));
  chartOf(document.getElementById("chart-parallel")).setOption({
    animation: false,
    parallel: { left: 40, right: 60, top: 36, bottom: 24 },
    parallelAxis: axes,
    series: [{
      type: "parallel",
      lineStyle: { width: 1.5, opacity: 0.6 },
      data: found.runs.map((_, at) => ({
        value: shown.map((column) => column.values[at] ?? "-"),
        lineStyle: { color: colour(colours, at), type: dash(at) },
      })),
    }],
  }, true);
}

function drawScatter(all, colours) {
  const pick = (id) => all[Number(document.getElementById(id).value)] ?? all[0];
  const [x, y] = [pick("scatter-x"), pick("scatter-y")];
  const lacking = found.runs.filter((_, at) => x.values[at] === null || y.values[at] === null).length;
  say("scatter-left-out", lacking ? `${lacking} of ${found.runs.length} runs lack${lacking === 1 ? "s" : ""} one of these values.` : "");
  const scale = (column) => ({
    type: column.isNumber ? "value" : "category",
    name: column.label,
    scale: true,
    nameTextStyle: { color: colours.text },
    axisLabel: { color: colours.text },
    axisLine: { lineStyle: { color: colours.line } },
    splitLine: { lineStyle: { color: colours.line } },
  });
  chartOf(document.getElementById("chart-scatter")).setOption({
    animation: false,
    grid: { left: 12, right: 40, top: 32, bottom: 8, containLabel: true },
    xAxis: { ...scale(x), nameLocation: "middle", nameGap: 28 },
    yAxis: scale(y),
    tooltip: { renderMode: "richText", backgroundColor: colours.surface, borderColor: colours.line, textStyle: { color: colours.body }, formatter: (mark) => `${mark.name}\n${x.label} ${mark.value[0]}\n${y.label} ${mark.value[1]}` },
    series: [{
      type: "scatter",
      symbolSize: 9,
      data: found.runs.map((run, at) => ({ name: run.name || run.id, value: [x.values[at], y.values[at]], itemStyle: { color: colour(colours, at) } }))
        .filter((mark) => mark.value[0] !== null && mark.value[1] !== null),
    }],
  }, true);
}

function draw() {
  if (!found || !window.echarts) return;
  const all = columns();
  const colours = palette(section);
  if (!all.length) {
    section.hidden = true;
    return;
  }
  for (const [id, at] of [["scatter-x", 0], ["scatter-y", all.length - 1]]) {
    const select = document.getElementById(id);
    if (select.options.length) continue;
    all.forEach((column, number) => select.add(new Option(column.label, String(number), number === at, number === at)));
    select.addEventListener("change", draw);
  }
  drawParallel(all, colours);
  drawScatter(all, colours);
  section.dataset.drawn = String(found.runs.length);
}

if (section) {
  const query = new URLSearchParams();
  for (const run of JSON.parse(document.getElementById("curves-runs").textContent)) query.append("run", run.id);
  fetch(`${section.dataset.compare}?${query}`, { headers: { Accept: "application/json" } })
    .then((answer) => (answer.ok ? answer.json() : null))
    .then((facts) => {
      found = facts;
      draw();
    })
    .catch(() => {}); // the table below tells the same
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
}
