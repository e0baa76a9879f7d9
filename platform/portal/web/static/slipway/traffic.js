// Charts of an endpoint in a time range: requests, latency, errors and ready replicas.
const MINUTE_MS = 60000;
const FAST_MS = 5000; // how often a range of up to an hour is fetched
const SLOW_MS = 60000;
const section = document.getElementById("traffic");
const now = document.getElementById("traffic-now");
const none = document.getElementById("traffic-none");
const charts = section?.querySelector(".charts");
const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const rate = (value) => String(value < 100 ? Number(value.toPrecision(2)) : Math.round(value));
const CHARTS = {
  rps: { lines: [["all", "rps"], ["failed or rejected", "bad"]], write: rate, gap: 0 },
  latency: { lines: [["p50", "p50"], ["p95", "p95"], ["p99", "p99"]], write: milliseconds, gap: null },
  errors: { lines: [["failed", "failed"], ["rejected", "rejected"], ["invalid key", "unauthorized"]], write: rate, gap: 0 },
  replicas: { write: (value) => String(Math.round(value)) },
};
const DASHES = ["solid", "dashed", "dotted"];
const drawn = new Map();
let newest = null;
let zoom = null; // [from, to] in milliseconds since 1970, or null for the whole range

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

// A step without a request has no latency; its rate is zero.
function filled({ points, step }, field, gap) {
  const rows = [];
  points.forEach((point, at) => {
    const before = points[at - 1];
    if (before && point.at - before.at > step) {
      rows.push([before.at + step, gap], [point.at - step, gap]);
    }
    rows.push([point.at, point[field]]);
  });
  return rows;
}

function seriesOf(name, answer, colours) {
  if (name === "replicas") {
    const rows = [...answer.replicas, [answer.until, answer.replicas.at(-1)[1]]];
    return [{ type: "line", name: "ready", step: "end", showSymbol: false, lineStyle: { width: 2 }, color: colours.series[0], data: rows }];
  }
  const { lines, gap } = CHARTS[name];
  return lines.map(([label, field], at) => ({
    type: "line",
    name: label,
    showSymbol: answer.points.length < 2,
    lineStyle: { width: 2, type: DASHES[at] },
    color: colours.series[at],
    data: filled(answer, field, gap),
  }));
}

function options(name, answer, colours) {
  const { write } = CHARTS[name];
  const [from, to] = zoom ?? [answer.since, answer.until];
  const isLong = to - from > 36 * 60 * MINUTE_MS;
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 26, top: 28, bottom: 4, containLabel: true },
    legend: { show: name !== "replicas", top: 0, textStyle: { color: colours.text } },
    // Its icons are hidden: dragging selects, see select().
    toolbox: { show: true, itemSize: 0, feature: { dataZoom: { yAxisIndex: "none", brushStyle: { color: colours.line, opacity: 0.4 } } } },
    xAxis: {
      type: "time",
      min: from,
      max: to,
      axisLine: { lineStyle: { color: colours.line } },
      axisLabel: { color: colours.text, hideOverlap: true, formatter: isLong ? "{MM}-{dd}" : "{HH}:{mm}" },
    },
    yAxis: {
      type: "value",
      min: 0,
      minInterval: name === "replicas" ? 1 : undefined,
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
    series: seriesOf(name, answer, colours),
  };
}

// Dragging over a chart zooms all of them; a double click shows the whole range again.
function select(chart) {
  chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
}

function chartOf(element) {
  const name = element.dataset.chart;
  if (!drawn.has(name)) {
    const chart = window.echarts.init(element, null, { renderer: "canvas" });
    chart.on("datazoom", (event) => {
      const [chosen] = event.batch ?? [event];
      if (chosen.startValue === undefined || chosen.startValue === null) return;
      zoom = [chosen.startValue, chosen.endValue];
      draw(newest);
    });
    element.addEventListener("dblclick", () => {
      zoom = null;
      draw(newest);
    });
    drawn.set(name, chart);
  }
  return drawn.get(name);
}

function draw(answer) {
  if (!window.echarts || !answer.points.length) return;
  none.hidden = true;
  charts.hidden = false;
  section.dataset.zoomed = zoom ? "yes" : "";
  const colours = palette();
  for (const element of charts.querySelectorAll("[data-chart]")) {
    const chart = chartOf(element);
    chart.setOption(options(element.dataset.chart, answer, colours), true);
    select(chart);
  }
  const last = answer.points.at(-1);
  const words = `${rate(last.rps)} requests/s${last.p95 === null ? "" : `, p95 ${milliseconds(last.p95)}`}`;
  const label = answer.step === MINUTE_MS ? "Last minute with traffic" : "Last point";
  now.textContent = `${label}: ${words}`;
  charts.querySelector('[data-chart="rps"]').setAttribute("aria-label", `Requests per second over time; last ${words}`);
}

async function refresh() {
  if (zoom) return;
  try {
    const answer = await fetch(section.dataset.points, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    newest = await answer.json();
    draw(newest);
  } catch {
    // The next time may do better; the page says elsewhere that the portal does not answer.
  }
}

if (section) {
  refresh().then(() => {
    const isShort = !newest || newest.until - newest.since <= 60 * MINUTE_MS;
    setInterval(() => document.hidden || refresh(), isShort ? FAST_MS : SLOW_MS);
  });
  new MutationObserver(() => newest && draw(newest)).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new ResizeObserver(() => drawn.forEach((chart) => chart.resize())).observe(section);
}
