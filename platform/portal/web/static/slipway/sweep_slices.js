// Slices of a sweep: the metric over each parameter alone, a small chart each.
import { chartOf, palette, resizeCharts, write } from "./charts.js";

const data = JSON.parse(document.getElementById("slices-data").textContent);
const root = document.getElementById("slices-charts");
const metric = () => Number(document.getElementById("slices-metric")?.value ?? 0);

const elements = data.parameters.map(({ name }) => {
  const figure = document.createElement("figure");
  const caption = Object.assign(document.createElement("figcaption"), { textContent: name });
  const chart = Object.assign(document.createElement("div"), { className: "chart" });
  chart.setAttribute("role", "img");
  figure.append(caption, chart);
  root.append(figure);
  return chart;
});

function option({ name, log, choices }, at, colours) {
  const shown = metric();
  const points = data.trials
    .map(([number, metrics, values]) => [values[at], metrics[shown], number])
    .filter(([value, measured]) => value !== null && typeof measured === "number")
    .map(([value, measured, number]) => [choices ? String(value) : value, measured, number]);
  const label = { color: colours.text, hideOverlap: true, formatter: choices ? undefined : write };
  const numbers = data.trials.map(([number]) => number);
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 20, top: 12, bottom: 4, containLabel: true },
    xAxis: {
      type: choices ? "category" : log ? "log" : "value",
      ...(choices ? { data: choices.map(String) } : { scale: true }),
      axisLine: { lineStyle: { color: colours.line } },
      splitLine: { show: false },
      axisLabel: label,
    },
    yAxis: { type: "value", scale: true, splitNumber: 3, splitLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text, formatter: write } },
    visualMap: { show: false, dimension: 2, min: Math.min(...numbers), max: Math.max(...numbers), inRange: { opacity: [0.25, 1] } },
    tooltip: {
      trigger: "item",
      confine: true,
      renderMode: "richText",
      backgroundColor: colours.surface,
      borderColor: colours.line,
      textStyle: { color: colours.body },
      formatter: ({ value }) => `Trial ${value[2]}\n${name}: ${write(value[0])}\n${data.metrics[shown]}: ${write(value[1])}`,
    },
    series: [{ type: "scatter", symbolSize: 7, color: colours.series[0], data: points }],
  };
}

function draw() {
  if (!window.echarts) return;
  const colours = palette(root);
  data.parameters.forEach((parameter, at) => {
    elements[at].setAttribute("aria-label", `${data.metrics[metric()]} over ${parameter.name}`);
    const drawn = option(parameter, at, colours);
    chartOf(elements[at]).setOption(drawn, true);
    elements[at].dataset.drawn = String(drawn.series[0].data.length);
  });
}

draw();
addEventListener("load", draw);
document.getElementById("slices-metric")?.addEventListener("change", draw);
new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
new ResizeObserver(resizeCharts).observe(root);
