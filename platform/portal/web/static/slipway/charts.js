// What all charts share: colours of the theme, line styles of many series, and their elements.
const charts = new Map();
const DASHES = ["solid", [7, 4], [2, 3], [9, 3, 2, 3]];
const SERIES = ["1", "2", "3", "4", "5", "6", "7", "8"].map((number) => `--slip-chart-${number}`);

export function palette(root) {
  const probe = document.createElement("span");
  root.append(probe);
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const colours = {
    text: read("--tblr-secondary"),
    line: read("--tblr-border-color"),
    surface: read("--tblr-bg-surface"),
    body: read("--tblr-body-color"),
    bad: read("--slip-bad"),
    series: SERIES.map(read),
  };
  probe.remove();
  return colours;
}

export function chartOf(element) {
  if (!charts.has(element)) charts.set(element, window.echarts.init(element, null, { renderer: "canvas" }));
  return charts.get(element);
}

export function dropChart(element) {
  charts.get(element)?.dispose();
  charts.delete(element);
}

export const resizeCharts = () => charts.forEach((chart) => chart.resize());

// Series beyond the eighth repeat the colours with other dashes. ECharts parses no `hsl()` with
// spaces, and draws such a series in no colour.
export const colour = (colours, at) => colours.series[at % colours.series.length];
export const dash = (at) => DASHES[Math.floor(at / SERIES.length) % DASHES.length];

// The start of a line as it is drawn, for legends.
export function swatch(colours, at) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "curves-swatch");
  svg.setAttribute("viewBox", "0 0 24 8");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(svg.namespaceURI, "line");
  const style = dash(at);
  const shape = { x1: 0, y1: 4, x2: 24, y2: 4, stroke: colour(colours, at), "stroke-width": 3, "stroke-dasharray": style === "solid" ? "none" : style.join(" ") };
  for (const [name, value] of Object.entries(shape)) line.setAttribute(name, String(value));
  svg.append(line);
  return svg;
}

// An exponential moving average (decay `weight` per point) without a bias towards the first point.
export function smoothed(values, weight) {
  let mean = 0;
  let mass = 0;
  return values.map(([x, y]) => {
    mean = mean * weight + (1 - weight) * y;
    mass = mass * weight + (1 - weight);
    return [x, mean / mass];
  });
}

export const write = (value) => (typeof value === "number" ? Number(value.toPrecision(6)).toString() : String(value));

// The end of a value axis: shares and percentages end at 1 and 100, where a round number above the
// highest value would be more than all. Other values have no end (null: ECharts takes a round one).
const IS_PERCENTAGE = /percent|pct|%|utili[sz]ation/i;

export function endOf(name, startsAtZero = false) {
  return ({ min, max }) => {
    const all = max <= 1 ? 1 : IS_PERCENTAGE.test(name) ? 100 : null;
    if (all === null || min < 0 || max > all) return null;
    // A round step of ECharts is at most two thirds of what the values span.
    const start = startsAtZero ? 0 : min;
    const room = max > start ? (2 / 3) * (max - start) : max / 2;
    return max + room >= all ? all : null;
  };
}
