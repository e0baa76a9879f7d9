// Curves of metrics, live: fetched thinned out, smoothed and drawn here.
const EVERY_MS = 2000;
const POINTS = 600;
const MOST_MARKS = 20;
const section = document.getElementById("curves");
const charts = new Map();
const ODD = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };
let timer = 0;
let shown = [];

export function palette(root) {
  const probe = document.createElement("span");
  root.append(probe);
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const found = {
    text: read("--tblr-secondary"),
    line: read("--tblr-border-color"),
    surface: read("--tblr-bg-surface"),
    body: read("--tblr-body-color"),
    bad: read("--slip-bad"),
    series: ["--slip-chart-1", "--slip-chart-2", "--slip-chart-3", "--slip-chart-4"].map(read),
  };
  probe.remove();
  return found;
}

export function chartOf(element) {
  if (!charts.has(element)) charts.set(element, window.echarts.init(element, null, { renderer: "canvas" }));
  return charts.get(element);
}

export function colour(colours, at) {
  return at < colours.series.length ? colours.series[at] : `hsl(${Math.round(at * 137.5) % 360} 55% 50%)`;
}

// A moving mean in which each point weighs `weight` less than the one after it, without a bias
// towards the first.
export function smoothed(values, weight) {
  let mean = 0;
  let mass = 0;
  return values.map(([x, y]) => {
    mean = mean * weight + (1 - weight) * y;
    mass = mass * weight + (1 - weight);
    return [x, mean / mass];
  });
}

const write = (value) => (typeof value === "number" ? Number(value.toPrecision(6)).toString() : String(value));
const control = (name) => section.querySelector(`[data-${name}]`);
const axis = () => control("axis").value;

function place(point, first) {
  if (axis() === "step") return point.step;
  return axis() === "time" ? point.at_ms : (point.at_ms - first) / 1000;
}

function lines(curve, name, at, colours, count) {
  const first = curve.points[0]?.at_ms ?? 0;
  const points = curve.points.map((point) => [place(point, first), point.value]);
  const finite = points.filter(([, value]) => typeof value === "number");
  const odd = points.filter(([, value]) => typeof value !== "number");
  const weight = Number(control("smoothing").value);
  const hue = colour(colours, at);
  const common = { type: "line", name, color: hue, showSymbol: finite.length < 2, symbolSize: 6, sampling: undefined };
  const drawn = [{
    ...common,
    data: finite,
    lineStyle: { width: weight ? 1 : 2, opacity: weight ? 0.3 : count > 20 ? 0.6 : 1 },
    silent: weight > 0,
    // What is no number has no height: it is marked where it happened.
    markLine: odd.length ? {
      symbol: "none", silent: true, lineStyle: { color: colours.bad, type: "dashed" },
      label: { formatter: (mark) => mark.name, color: colours.bad },
      data: odd.slice(0, MOST_MARKS).map(([x, value]) => ({ xAxis: x, name: value })),
    } : undefined,
  }];
  if (weight) drawn.push({ ...common, data: smoothed(finite, weight), lineStyle: { width: 2 } });
  return drawn;
}

function options(curves, colours) {
  const names = (section.dataset.names ?? "").split("\n");
  const runs = section.dataset.runs.split(",");
  const series = curves.flatMap((curve) => {
    const at = runs.indexOf(curve.run);
    return lines(curve, names[at] || curve.run.slice(0, 8), at, colours, curves.length);
  });
  const isTime = axis() === "time";
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 26, top: 16, bottom: 4, containLabel: true },
    xAxis: {
      type: isTime ? "time" : "value",
      scale: true,
      axisLine: { lineStyle: { color: colours.line } },
      splitLine: { show: false },
      axisLabel: { color: colours.text, hideOverlap: true, formatter: isTime ? { hour: "{HH}:{mm}", minute: "{HH}:{mm}", second: "{HH}:{mm}:{ss}" } : axis() === "since" ? "{value} s" : null },
    },
    yAxis: {
      type: control("log").checked ? "log" : "value",
      scale: true,
      splitNumber: 4,
      splitLine: { lineStyle: { color: colours.line } },
      axisLabel: { color: colours.text, formatter: write },
    },
    tooltip: {
      trigger: "axis",
      renderMode: "richText",
      backgroundColor: colours.surface,
      borderColor: colours.line,
      textStyle: { color: colours.body },
      valueFormatter: write,
      confine: true,
    },
    series,
  };
}

// Sentences about what is in the curves of a chart and not drawn.
function undrawn(curves) {
  const count = (number) => number.toLocaleString("en");
  const points = curves.flatMap((curve) => curve.points);
  const total = curves.reduce((sum, curve) => sum + curve.total, 0);
  const marks = curves.map((curve) => curve.points.filter((point) => typeof point.value !== "number").length);
  const unmarked = marks.reduce((sum, number) => sum + Math.max(0, number - MOST_MARKS), 0);
  const low = points.filter((point) => typeof point.value === "number" && point.value <= 0).length;
  const words = [];
  if (points.length < total) words.push(`${count(points.length)} of ${count(total)} points shown: the minimum and maximum of each interval.`);
  if (unmarked) words.push(`${count(unmarked)} NaN or infinite points are not shown.`);
  if (low && control("log").checked) words.push(`${count(low)} values of 0 or less are not shown on the log scale.`);
  return words.join(" ");
}

function noteUndrawn(figure, words) {
  let note = figure.querySelector("[data-left-out]");
  if (!note) {
    if (!words) return;
    note = document.createElement("p");
    note.className = "text-secondary small mb-0";
    note.dataset.leftOut = "";
    figure.append(note);
  }
  note.textContent = words;
  note.hidden = !words;
}

function draw() {
  if (!window.echarts) return;
  const colours = palette(section);
  for (const figure of section.querySelectorAll("figure[data-key]")) {
    const mine = shown.filter((curve) => curve.key === figure.dataset.key);
    const element = figure.querySelector(".chart");
    chartOf(element).setOption(options(mine, colours), true);
    const last = mine.length === 1 ? mine[0].points.at(-1)?.value : undefined;
    const total = mine.reduce((sum, curve) => sum + curve.total, 0);
    const said = last === undefined ? "" : ` ${write(last in ODD ? String(last) : last)}`;
    figure.querySelector("[data-said]").textContent = said;
    element.setAttribute("aria-label", `${figure.dataset.key}, ${total} points;${said || ` ${mine.length} curves`}`);
    element.dataset.total = String(total);
    noteUndrawn(figure, undrawn(mine));
  }
}

async function refresh() {
  const keys = [...section.querySelectorAll("figure[data-key]")].map((figure) => figure.dataset.key);
  if (!keys.length) return;
  const runs = section.dataset.runs.split(",");
  const query = new URLSearchParams({ points: String(runs.length > 20 ? 120 : POINTS), axis: axis() === "step" ? "step" : "time" });
  for (const run of runs) query.append("run", run);
  for (const key of keys) query.append("key", key);
  try {
    const answer = await fetch(`${section.dataset.curves}?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    shown = await answer.json();
    draw();
  } catch {
    // The next time may do better; the page says elsewhere that the portal does not answer.
  }
}

// New metrics of a run that goes on get charts of their own.
function follow() {
  const status = document.getElementById("run-figures")?.dataset.status;
  if (status && status !== "RUNNING") {
    clearInterval(timer);
    refresh();
    return;
  }
  if (!document.hidden) refresh();
}

if (section) {
  refresh();
  if (section.dataset.live === "yes") timer = setInterval(follow, EVERY_MS);
  control("smoothing").addEventListener("input", draw);
  control("log").addEventListener("change", draw);
  control("axis").addEventListener("change", refresh);
  const choice = section.querySelector("[data-key-choice]");
  choice?.addEventListener("change", () => {
    const figure = section.querySelector("figure[data-key]");
    figure.dataset.key = choice.value;
    figure.querySelector("[data-title]").textContent = choice.value;
    refresh();
  });
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(section);
}
