// Charts of an endpoint: volume, latency, errors, quality, and a feature beside its baseline.
import { endOf } from "./charts.js";

const charts = new Map();

// The colours of the page as it is now, light or dark.
function palette() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const found = {
    text: read("--tblr-secondary"),
    line: read("--tblr-border-color"),
    surface: read("--tblr-bg-surface"),
    body: read("--tblr-body-color"),
    series: ["--slip-chart-1", "--slip-chart-3"].map(read),
  };
  probe.remove();
  return found;
}

function frame(colours, categories, lines, type, end = null) {
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 18, top: 28, bottom: 4, containLabel: true },
    xAxis: { type: "category", data: categories, axisLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text, hideOverlap: true } },
    yAxis: { type: "value", splitNumber: 3, scale: type === "line", max: end, splitLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text } },
    legend: { show: lines.length > 1, top: 0, textStyle: { color: colours.text } },
    // Drawn on the canvas: a tooltip of HTML would need styles inside the page.
    tooltip: { trigger: "axis", renderMode: "richText", backgroundColor: colours.surface, borderColor: colours.line, textStyle: { color: colours.body } },
    series: lines.map(([name, data], at) => ({ type, name, data, color: colours.series[at], showSymbol: data.length < 3, barMaxWidth: 28, connectNulls: true })),
  };
}

const OPTIONS = {
  "chart-volume": (it, colours) => frame(colours, it.at, [["predictions", it.predictions]], "bar"),
  "chart-latency": (it, colours) => frame(colours, it.at, [["p50", it.half], ["p95", it.slow]], "line"),
  "chart-errors": (it, colours) => frame(colours, it.at, [["failed", it.failed], ["rejected", it.rejected]], "bar"),
  "chart-quality": (it, colours) => frame(colours, it.at, [["measured", it.measured], ["estimate", it.estimate]], "line", endOf("quality")),
  "chart-feature": (it, colours) => frame(colours, it.bins, [["baseline", it.base], ["predictions", it.window]], "bar", endOf("percent", true)),
};

function draw() {
  if (!window.echarts) return;
  const colours = palette();
  for (const [id, options] of Object.entries(OPTIONS)) {
    const element = document.getElementById(id);
    if (!element) continue;
    const known = charts.get(id);
    if (known && known.getDom() !== element) known.dispose();
    if (!known || known.isDisposed()) charts.set(id, window.echarts.init(element, null, { renderer: "canvas" }));
    charts.get(id).setOption(options(JSON.parse(element.dataset.series), colours), true);
  }
}

draw();
addEventListener("load", draw);
new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
addEventListener("resize", () => charts.forEach((chart) => chart.resize()));
