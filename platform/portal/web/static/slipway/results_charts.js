// Charts that runs log as JSON: confusion matrices, ROC and PR curves, histograms by step.
import { chartOf, colour, dash, palette, write } from "./charts.js";

const MOST_ROWS = 200;
const textOf = (colours) => ({ color: colours.text, fontFamily: "Inter Variable, sans-serif" });
const tooltipOf = (colours) => ({ backgroundColor: colours.surface, borderColor: colours.line, textStyle: { color: colours.body }, renderMode: "richText", confine: true });
const axisOf = (colours, name) => ({ name, nameLocation: "middle", nameGap: 26, scale: true, nameTextStyle: { color: colours.text }, axisLabel: { color: colours.text, hideOverlap: true }, axisLine: { lineStyle: { color: colours.line } }, splitLine: { lineStyle: { color: colours.line } } });

// Names of axes are part of what has to fit: `containLabel` alone cuts off the one on the left.
const gridOf = (top) => ({ left: 4, right: 16, top, bottom: 4, outerBoundsMode: "same", outerBoundsContain: "all" });

function matrixOptions({ labels, matrix }, colours) {
  const sums = matrix.map((row) => row.reduce((sum, value) => sum + value, 0) || 1);
  const cells = matrix.flatMap((row, y) => row.map((value, x) => ({ value: [x, y, value / sums[y], value], label: { color: value > sums[y] / 2 ? colours.surface : colours.body } })));
  return {
    animation: false, textStyle: textOf(colours),
    grid: gridOf(12),
    xAxis: { ...axisOf(colours, "predicted"), type: "category", data: labels },
    yAxis: { ...axisOf(colours, "true"), type: "category", data: labels, inverse: true },
    visualMap: { show: false, min: 0, max: 1, dimension: 2, inRange: { color: [colours.surface, colours.series[0]] } },
    tooltip: { ...tooltipOf(colours), formatter: ({ value: [x, y, share, count] }) => `true ${labels[y]}\npredicted ${labels[x]}\n${write(count)} (${(100 * share).toFixed(1)} % of the true ones)` },
    series: [{ type: "heatmap", data: cells, label: { show: labels.length <= 12, formatter: ({ value }) => write(value[3]) } }],
  };
}

function curveOptions({ type, curves }, colours) {
  const [x, y] = type === "roc_curve" ? ["false positive rate", "true positive rate"] : ["recall", "precision"];
  const chance = type === "roc_curve" ? [{ type: "line", name: "chance", data: [[0, 0], [1, 1]], symbol: "none", silent: true, color: colours.text, lineStyle: { type: "dotted", width: 1 } }] : [];
  return {
    animation: false, textStyle: textOf(colours),
    grid: gridOf(curves.length > 1 ? 34 : 12),
    legend: { show: curves.length > 1, type: "scroll", top: 0, textStyle: { color: colours.text }, data: curves.map((curve) => curve.label) },
    xAxis: { ...axisOf(colours, x), type: "value", min: 0, max: 1 },
    yAxis: { ...axisOf(colours, y), type: "value", min: 0, max: 1 },
    tooltip: { ...tooltipOf(colours), trigger: "item", formatter: (mark) => `${mark.seriesName}\n${x} ${write(mark.value[0])}\n${y} ${write(mark.value[1])}` },
    series: [...curves.map((curve, at) => ({ type: "line", name: curve.label || `curve ${at + 1}`, data: curve.points, showSymbol: false, color: colour(colours, at), lineStyle: { width: 2, type: dash(at) } })), ...chance],
  };
}

function histogramOptions({ edges, counts }, colours) {
  return {
    animation: false, textStyle: textOf(colours),
    grid: { left: 12, right: 16, top: 12, bottom: 8, containLabel: true },
    xAxis: { ...axisOf(colours, ""), type: "value", min: edges[0], max: edges.at(-1) },
    yAxis: { ...axisOf(colours, ""), type: "value", min: 0 },
    series: [outline(edges, counts, 0, 1, colours.series[0], 0.3)],
  };
}

const translucent = (hue, opacity) => hue.replace("rgb(", "rgba(").replace(")", `, ${opacity})`);

// The outline of a histogram, drawn `lift` above zero and `scale` high.
function outline(edges, counts, lift, scale, hue, opacity) {
  const points = counts.flatMap((count, at) => [[edges[at], count], [edges[at + 1], count]]);
  return {
    type: "custom", silent: true, data: [0], z: 2,
    renderItem: (_, api) => {
      const corners = points.map(([x, count]) => api.coord([x, lift + count * scale]));
      const [first, last] = [api.coord([edges[0], lift]), api.coord([edges.at(-1), lift])];
      return { type: "polygon", shape: { points: [first, ...corners, last] }, style: { fill: translucent(hue, opacity), stroke: hue, lineWidth: 1.5 } };
    },
  };
}

// Histograms of several steps one behind the other, the first step in the back.
export function ridgelineOptions(steps, colours) {
  const low = Math.min(...steps.map((it) => it.edges[0]));
  const high = Math.max(...steps.map((it) => it.edges.at(-1)));
  const density = (it) => it.counts.map((count, at) => count / Math.max(1e-300, it.edges[at + 1] - it.edges[at]) / Math.max(1, it.counts.reduce((sum, value) => sum + value, 0)));
  const heights = steps.map(density).map((values) => values.filter(Number.isFinite));
  const most = Math.max(...heights.flat(), 1e-300);
  const room = Math.max(3, steps.length / 4);
  return {
    animation: false, textStyle: textOf(colours),
    grid: gridOf(8),
    xAxis: { ...axisOf(colours, ""), type: "value", min: low, max: high > low ? high : low + 1 },
    yAxis: { ...axisOf(colours, "step"), type: "value", scale: false, min: 0, max: steps.length - 1 + room, interval: Math.max(1, Math.ceil(steps.length / 6)), axisLabel: { color: colours.text, formatter: (at) => (steps[steps.length - 1 - at] ? String(steps[steps.length - 1 - at].step) : "") }, splitLine: { show: false } },
    series: steps.map((it, at) => ({ ...outline(it.edges, density(it).map((value) => (Number.isFinite(value) ? value : 0)), steps.length - 1 - at, room / most, colours.series[0], 0.15 + (0.5 * (at + 1)) / steps.length), z: 2 + at })),
  };
}

const OPTIONS = { confusion_matrix: matrixOptions, roc_curve: curveOptions, pr_curve: curveOptions, histogram: histogramOptions };

function rowsOf(chart) {
  if (chart.type === "confusion_matrix") return [["true \\ predicted", ...chart.labels], ...chart.matrix.map((row, at) => [chart.labels[at], ...row])];
  if (chart.type === "histogram") return [["from", "to", "count"], ...chart.counts.map((count, at) => [chart.edges[at], chart.edges[at + 1], count])];
  return [["curve", "x", "y"], ...chart.curves.flatMap((curve) => curve.points.map(([x, y]) => [curve.label, x, y]))];
}

function fillTable(body, chart) {
  body.replaceChildren(...rowsOf(chart).slice(0, MOST_ROWS).map((cells, row) => {
    const line = document.createElement("tr");
    for (const cell of cells) {
      const box = document.createElement(row ? "td" : "th");
      box.textContent = typeof cell === "number" ? write(cell) : cell;
      if (typeof cell === "number") box.className = "cell-number";
      line.append(box);
    }
    return line;
  }));
}

function drawOne(figure) {
  const steps = JSON.parse(figure.querySelector("[data-steps] script").textContent);
  const slider = figure.querySelector("[data-slider]");
  const chart = figure.querySelector(".chart");
  const colours = palette(figure);
  const isRidge = steps.length > 1 && steps.every((it) => it.type === "histogram");
  const at = isRidge || figure.dataset.started ? Number(slider.value) : steps.length - 1;
  figure.dataset.started = "yes";
  slider.max = String(steps.length - 1);
  slider.value = String(at);
  slider.hidden = isRidge || steps.length < 2;
  const shown = isRidge ? steps.at(-1) : steps[at];
  figure.querySelector("[data-step]").textContent = isRidge ? `${steps.length} steps` : shown.step === null ? "" : `step ${shown.step}`;
  chartOf(chart).setOption(isRidge ? ridgelineOptions(steps, colours) : OPTIONS[shown.type](shown, colours), true);
  fillTable(figure.querySelector("[data-values]"), shown);
}

export function startCharts(root) {
  const figures = [...root.querySelectorAll("[data-chart]")].filter((figure) => figure.querySelector("[data-steps]"));
  if (!figures.length) return;
  const all = () => figures.forEach(drawOne);
  figures.forEach((figure) => figure.querySelector("[data-slider]").addEventListener("input", () => drawOne(figure)));
  all();
  new MutationObserver(all).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
}
