// Chart of a sweep: the value of each trial, and the best value so far. The data are in the attribute of
// the state, which reloads while the sweep runs.
import { chartOf, palette, resizeCharts, write } from "./charts.js";

const element = document.getElementById("sweep-chart");
const none = document.getElementById("sweep-none");
const state = () => document.getElementById("sweep-state");

function options({ metric, trials, best }, colours) {
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 26, top: 28, bottom: 20, containLabel: true },
    legend: { top: 0, textStyle: { color: colours.text } },
    xAxis: { type: "value", name: "trial", nameLocation: "middle", nameGap: 24, minInterval: 1, axisLine: { lineStyle: { color: colours.line } }, splitLine: { show: false }, axisLabel: { color: colours.text, hideOverlap: true } },
    yAxis: { type: "value", scale: true, splitNumber: 4, splitLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text, formatter: write } },
    tooltip: { trigger: "item", confine: true, renderMode: "richText", backgroundColor: colours.surface, borderColor: colours.line, textStyle: { color: colours.body }, formatter: ({ seriesName, value }) => `Trial ${value[0]}\n${seriesName}: ${write(value[1])}` },
    series: [
      { type: "scatter", name: metric, symbolSize: 7, color: colours.series[1], data: trials },
      { type: "line", name: "best so far", step: "end", symbolSize: 5, lineStyle: { width: 2 }, color: colours.series[0], data: best },
    ],
  };
}

function draw() {
  if (!window.echarts || !element || !state()) return;
  const data = JSON.parse(state().dataset.curve);
  element.hidden = !data.trials.length;
  none.hidden = !element.hidden;
  if (element.hidden) return;
  chartOf(element).setOption(options(data, palette(element.parentElement)), true);
  element.dataset.drawn = String(data.trials.length);
}

draw();
addEventListener("load", draw);
if (element) {
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new MutationObserver(draw).observe(state().parentElement, { attributeFilter: ["data-curve"], subtree: true });
  new ResizeObserver(resizeCharts).observe(element.parentElement);
}
