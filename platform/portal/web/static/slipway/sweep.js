// Charts of a sweep: the value of each trial and the best value so far, or the Pareto front of several
// metrics. The data are in attributes of parts that reload while the sweep runs.
import { chartOf, palette, resizeCharts, write } from "./charts.js";

const element = document.getElementById("sweep-chart");
const none = document.getElementById("sweep-none");
const state = () => document.getElementById("sweep-state");
const front = () => document.getElementById("sweep-front");

const axis = (colours, settings) => ({ type: "value", axisLine: { lineStyle: { color: colours.line } }, splitLine: { show: false }, axisLabel: { color: colours.text, hideOverlap: true }, ...settings });

const shared = (colours) => ({
  animation: false,
  textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
  grid: { left: 8, right: 26, top: 28, bottom: 20, containLabel: true },
  legend: { top: 0, textStyle: { color: colours.text } },
  tooltip: { trigger: "item", confine: true, renderMode: "richText", backgroundColor: colours.surface, borderColor: colours.line, textStyle: { color: colours.body } },
});

function curve({ metric, trials, infeasible, best }, colours) {
  const common = shared(colours);
  return {
    ...common,
    xAxis: axis(colours, { name: "trial", nameLocation: "middle", nameGap: 24, minInterval: 1 }),
    yAxis: axis(colours, { scale: true, splitNumber: 4, splitLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text, formatter: write } }),
    tooltip: { ...common.tooltip, formatter: ({ seriesName, value }) => `Trial ${value[0]}\n${seriesName}: ${write(value[1])}` },
    series: [
      { type: "scatter", name: metric, symbolSize: 7, color: colours.series[1], data: trials },
      ...(infeasible.length ? [{ type: "scatter", name: "infeasible", symbol: "emptyDiamond", symbolSize: 8, color: colours.text, data: infeasible }] : []),
      { type: "line", name: "best so far", step: "end", symbolSize: 5, lineStyle: { width: 2 }, color: colours.series[0], data: best },
    ],
  };
}

function scatter({ metrics, front: best, others }, [across, up], colours) {
  const common = shared(colours);
  const points = (trials) => trials.map((trial) => [trial[across], trial[up], trial[0]]);
  const value = (name, nameGap) => axis(colours, { scale: true, name, nameLocation: "middle", nameGap, splitNumber: 4, axisLabel: { color: colours.text, hideOverlap: true, formatter: write } });
  return {
    ...common,
    grid: { ...common.grid, left: 26 },
    xAxis: value(metrics[across - 1], 24),
    yAxis: { ...value(metrics[up - 1], 46), splitLine: { lineStyle: { color: colours.line } } },
    tooltip: { ...common.tooltip, formatter: ({ value: at }) => `Trial ${at[2]}\n${metrics[across - 1]}: ${write(at[0])}\n${metrics[up - 1]}: ${write(at[1])}` },
    series: [
      { type: "scatter", name: "other trials", symbolSize: 7, color: colours.series[1], data: points(others) },
      { type: "scatter", name: "Pareto front", symbol: "diamond", symbolSize: 11, color: colours.series[0], data: points(best) },
    ],
  };
}

function drawCurve() {
  const data = JSON.parse(state().dataset.curve);
  element.hidden = !data.trials.length && !data.infeasible.length;
  none.hidden = !element.hidden;
  if (element.hidden) return;
  chartOf(element).setOption(curve(data, palette(element.parentElement)), true);
  element.dataset.drawn = String(data.trials.length);
}

function drawFront() {
  const chart = document.getElementById("front-chart");
  const data = JSON.parse(front().dataset.front);
  const axes = ["x", "y"].map((name, at) => Number(document.getElementById(`front-${name}`)?.value ?? at + 1));
  chart.hidden = !data.front.length && !data.others.length;
  if (chart.hidden) return;
  chartOf(chart).setOption(scatter(data, axes, palette(chart.parentElement)), true);
  chart.dataset.drawn = String(data.front.length);
}

function draw() {
  if (!window.echarts || !state()) return;
  if (element) drawCurve();
  if (front()) drawFront();
}

draw();
addEventListener("load", draw);
document.addEventListener("change", ({ target }) => {
  if (target.id === "front-x" || target.id === "front-y") draw();
});
const watched = element ?? document.getElementById("front-chart");
if (watched) {
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  new MutationObserver(draw).observe(state().parentElement, { attributeFilter: ["data-curve", "data-front"], subtree: true });
  new ResizeObserver(resizeCharts).observe(watched.parentElement);
}
