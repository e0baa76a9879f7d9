// Charts of what the tasks of a job use: CPU, memory and GPU over time, a line for each node.
const EVERY_MS = 3000;
const GIB = 1024 ** 3;
const MIB = 1024 ** 2;
// As the pages write sizes: small ones in MiB, so that labels of an axis differ.
const memory = (value) => (value < GIB ? `${Math.round(value / MIB)} MiB` : `${(value / GIB).toFixed(2)} GiB`);
const section = document.getElementById("usage");
const now = document.getElementById("usage-now");
const leftOut = document.getElementById("usage-left-out");
const CHARTS = [
  { id: "chart-cpu", name: "CPU", column: 1, least: 1, write: (value) => `${Math.round(value)} %` },
  { id: "chart-memory", name: "memory", column: 2, least: MIB, write: memory },
  { id: "chart-gpu", name: "GPU", column: 3, least: 1, write: (value) => `${Math.round(value)} %` },
];
const drawn = new Map();
let newest = null;

// The colours of the page as it is now, light or dark.
function palette() {
  const probe = document.createElement("span");
  section.append(probe);
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const found = {
    text: read("--tblr-secondary"),
    line: read("--tblr-border-color"),
    surface: read("--tblr-bg-surface"),
    body: read("--tblr-body-color"),
    series: ["--slip-chart-1", "--slip-chart-2", "--slip-chart-3", "--slip-chart-4"].map(read),
  };
  probe.remove();
  return found;
}

function options({ column, least, write }, facts, colours) {
  const limit = column === 1 ? facts.cpu_limit_percent : column === 2 ? facts.memory_limit_bytes : 100;
  const series = facts.tasks.map((task, at) => ({
    type: "line",
    name: facts.tasks.length > 1 ? `Node ${task.index}` : "",
    showSymbol: task.points.length < 2,
    lineStyle: { width: 2 },
    areaStyle: { opacity: facts.tasks.length > 1 ? 0 : 0.12 },
    color: colours.series[at % colours.series.length],
    data: task.points.filter((point) => point[column] !== null).map((point) => [point[0], point[column]]),
  }));
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 26, top: 12, bottom: 4, containLabel: true },
    xAxis: {
      type: "time",
      axisLine: { lineStyle: { color: colours.line } },
      axisLabel: { color: colours.text, hideOverlap: true, formatter: { hour: "{HH}:{mm}", minute: "{HH}:{mm}", second: "{HH}:{mm}:{ss}" } },
    },
    yAxis: {
      type: "value",
      min: 0,
      max: (range) => (range.max > limit * 0.5 ? Math.max(range.max, limit) : null),
      splitNumber: 3,
      minInterval: least, // no two labels of an axis are written alike
      splitLine: { lineStyle: { color: colours.line } },
      axisLabel: { color: colours.text, formatter: write },
    },
    // Drawn on the canvas: a tooltip of HTML would need styles inside the page.
    tooltip: {
      trigger: "axis",
      renderMode: "richText",
      backgroundColor: colours.surface,
      borderColor: colours.line,
      textStyle: { color: colours.body },
      valueFormatter: write,
    },
    series,
  };
}

function draw(facts) {
  if (!facts.tasks.length || !window.echarts) return;
  section.hidden = false;
  const colours = palette();
  const said = [];
  for (const chart of CHARTS) {
    const element = document.getElementById(chart.id);
    const last = facts.tasks.map((task) => task.points.at(-1)?.[chart.column]).filter((value) => value !== null && value !== undefined);
    element.closest("figure").hidden = !last.length;
    if (!last.length) continue;
    if (!drawn.has(chart.id)) {
      drawn.set(chart.id, window.echarts.init(element, null, { renderer: "canvas" }));
    }
    drawn.get(chart.id).setOption(options(chart, facts, colours), true);
    const words = last.map(chart.write).join(", ");
    element.setAttribute("aria-label", `${chart.name} over time; last ${words}`);
    said.push(`${chart.name} ${words}`);
  }
  now.textContent = facts.has_ended ? "" : said.join(" · ");
  leftOut.hidden = !facts.left_out;
  leftOut.textContent = `${facts.left_out.toLocaleString("en")} earlier samples of this attempt are not shown. The API lists all.`;
}

async function refresh() {
  try {
    const answer = await fetch(section.dataset.samples, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    newest = await answer.json();
    draw(newest);
    if (newest.has_ended) clearInterval(timer);
  } catch {
    // The next time may do better; the page says elsewhere that the portal does not answer.
  }
}

let timer = 0;
if (section) {
  refresh();
  timer = setInterval(() => document.hidden || refresh(), EVERY_MS);
  new MutationObserver(() => newest && draw(newest)).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new ResizeObserver(() => drawn.forEach((chart) => chart.resize())).observe(section);
}
