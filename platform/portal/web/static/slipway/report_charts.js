// Charts of a report with tooltips, in place of their drawings. Without this script, or without an
// answer of the portal, the drawings stay.
import { chartOf, endOf, palette, resizeCharts, write } from "./charts.js";
import { runSeries } from "./curves_series.js";

const POINTS = 600;
const article = document.querySelector("article.report[data-curves]");
const shown = [];

function options({ config, curves }, colours) {
  const isTime = config.x === "time";
  const settings = { x: config.x, smooth: config.smooth, xlog: false, pin: new Set(), base: "" };
  const runs = new Map(config.runs.map((run) => [run.id, run]));
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 26, top: 16, bottom: 4, containLabel: true },
    xAxis: { type: isTime ? "time" : "value", scale: true, axisLine: { lineStyle: { color: colours.line } }, splitLine: { show: false }, axisLabel: { color: colours.text, hideOverlap: true } },
    yAxis: { type: config.log ? "log" : "value", scale: true, max: config.log ? null : endOf(config.key), splitNumber: 4, splitLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text, formatter: write } },
    tooltip: { trigger: "axis", confine: true, renderMode: "richText", valueFormatter: write, backgroundColor: colours.surface, borderColor: colours.line, textStyle: { color: colours.body } },
    series: curves.flatMap((curve) => runSeries(curve, runs.get(curve.run), settings, [], colours, false)),
  };
}

function draw() {
  const colours = palette(article);
  for (const entry of shown) chartOf(entry.element).setOption(options(entry, colours), true);
}

async function replace(figure) {
  const config = JSON.parse(figure.dataset.reportChart);
  const query = new URLSearchParams({ points: String(POINTS), axis: config.x });
  config.runs.forEach((run) => query.append("run", run.id));
  query.append("key", config.key);
  const answer = await fetch(`${article.dataset.curves}?${query}`, { headers: { Accept: "application/json" } });
  const drawing = figure.querySelector("svg.report-svg");
  if (!answer.ok || !drawing) return;
  const known = new Set(config.runs.map((run) => run.id));
  const curves = (await answer.json()).filter((curve) => known.has(curve.run));
  const element = document.createElement("div");
  element.className = "report-chart";
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", `${config.key}, ${curves.length} curve${curves.length === 1 ? "" : "s"}`);
  drawing.replaceWith(element);
  shown.push({ element, config, curves });
  draw();
}

if (article && window.echarts) {
  document.querySelectorAll("[data-report-chart]").forEach((figure) => replace(figure).catch(() => {}));
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new ResizeObserver(resizeCharts).observe(article);
}
