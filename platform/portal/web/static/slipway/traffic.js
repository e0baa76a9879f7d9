// Charts of an endpoint: requests a second and latency over the last hour, by the minute.
const EVERY_MS = 5000;
const MINUTE_MS = 60000;
const section = document.getElementById("traffic");
const now = document.getElementById("traffic-now");
const none = document.getElementById("traffic-none");
const charts = section?.querySelector(".charts");
const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const CHARTS = [
  { id: "chart-rps", name: "Requests per second", lines: [["all", "rps"], ["failed or rejected", "bad"]], write: (value) => value.toFixed(value < 10 ? 1 : 0) },
  { id: "chart-latency", name: "Latency", lines: [["p50", "p50"], ["p95", "p95"], ["p99", "p99"]], write: milliseconds },
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
    series: ["--slip-chart-1", "--slip-chart-2", "--slip-chart-3"].map(read),
  };
  probe.remove();
  return found;
}

// A minute without a request is nothing that was measured; in the rate it is a zero.
function filled(points, field) {
  const rows = [];
  points.forEach((point, at) => {
    const before = points[at - 1];
    if (before && point.at - before.at > MINUTE_MS) {
      const gap = field === "rps" || field === "bad" ? 0 : null;
      rows.push([before.at + MINUTE_MS, gap], [point.at - MINUTE_MS, gap]);
    }
    rows.push([point.at, point[field]]);
  });
  return rows;
}

function options({ lines, write }, points, colours) {
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 26, top: 28, bottom: 4, containLabel: true },
    legend: { show: true, top: 0, textStyle: { color: colours.text } },
    xAxis: {
      type: "time",
      // The hour, not what echarts makes of a single point: two days.
      min: Date.now() - 60 * MINUTE_MS,
      max: Date.now(),
      axisLine: { lineStyle: { color: colours.line } },
      axisLabel: { color: colours.text, hideOverlap: true, formatter: { hour: "{HH}:{mm}", minute: "{HH}:{mm}", second: "{HH}:{mm}:{ss}" } },
    },
    yAxis: {
      type: "value",
      min: 0,
      splitNumber: 3,
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
      valueFormatter: (value) => (value === null || value === undefined ? "–" : write(value)),
    },
    series: lines.map(([name, field], at) => ({
      type: "line",
      name,
      showSymbol: points.length < 2,
      lineStyle: { width: 2 },
      color: colours.series[at],
      data: filled(points, field),
    })),
  };
}

function draw(points) {
  if (!window.echarts || !points.length) return;
  none.hidden = true;
  charts.hidden = false;
  const colours = palette();
  for (const chart of CHARTS) {
    const element = document.getElementById(chart.id);
    if (!drawn.has(chart.id)) {
      drawn.set(chart.id, window.echarts.init(element, null, { renderer: "canvas" }));
    }
    drawn.get(chart.id).setOption(options(chart, points, colours), true);
  }
  const last = points.at(-1);
  const words = `${last.rps.toFixed(1)} requests/s${last.p95 === null ? "" : `, p95 ${milliseconds(last.p95)}`}`;
  now.textContent = `Last minute with traffic: ${words}`;
  document.getElementById("chart-rps").setAttribute("aria-label", `Requests per second over time; last ${words}`);
}

async function refresh() {
  try {
    const answer = await fetch(section.dataset.points, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    newest = (await answer.json()).points;
    draw(newest);
  } catch {
    // The next time may do better; the page says elsewhere that the portal does not answer.
  }
}

if (section) {
  refresh();
  setInterval(() => document.hidden || refresh(), EVERY_MS);
  new MutationObserver(() => newest && draw(newest)).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new ResizeObserver(() => drawn.forEach((chart) => chart.resize())).observe(section);
}
