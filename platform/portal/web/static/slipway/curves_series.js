// Series of a chart of curves: where points lie on the axis, smoothing, means of groups.
import { colour, dash, smoothed } from "./charts.js";

const MOST_MARKS = 20;
const GRID = 200;
const isNumber = (value) => typeof value === "number";

// Where a point lies on the x axis. `epochs` has [step, epoch] of the run, in the order of steps.
export function placer(axis, curve, epochs) {
  if (axis === "step") return (point) => point.step;
  if (axis === "time") return (point) => point.at_ms;
  if (axis === "epoch") return (point) => interpolated(epochs, point.step);
  const first = curve.points[0]?.at_ms ?? 0;
  return (point) => (point.at_ms - first) / 1000;
}

// The y at x of points [x, y] in the order of x, or null outside of them.
export function interpolated(points, x) {
  if (!points?.length || x < points[0][0] || x > points.at(-1)[0]) return null;
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle;
    else high = middle;
  }
  const [[x0, y0], [x1, y1]] = [points[low], points[high]];
  return x1 === x0 ? y1 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

// Points [x, value] of a curve, without those that have no place on the axis.
export function placed(curve, settings, epochs) {
  const place = placer(settings.x, curve, epochs);
  return curve.points
    .map((point) => [place(point), point.value])
    .filter(([x]) => x !== null && !(settings.xlog && x <= 0));
}

export function runSeries(curve, run, settings, epochs, colours, crowded) {
  const points = placed(curve, settings, epochs);
  const finite = points.filter(([, value]) => isNumber(value));
  const odd = points.filter(([, value]) => !isNumber(value));
  const weight = settings.smooth;
  const hue = colour(colours, run.at);
  const pinned = settings.pin.has(run.id);
  const width = pinned ? 3.5 : 2;
  const common = {
    type: "line", name: run.name, color: hue, showSymbol: finite.length < 2, symbolSize: 6,
    z: pinned ? 4 : 2, emphasis: { focus: "series", lineStyle: { width: width + 1 } },
  };
  const type = settings.base === run.id ? "dashed" : dash(run.at);
  const series = [{
    ...common,
    id: `${run.id}:raw`,
    data: finite,
    lineStyle: { type, width: weight ? 1 : width, opacity: weight ? 0.25 : crowded && !pinned ? 0.6 : 1 },
    silent: weight > 0,
    // A value that is no number has no height: it is marked where it was logged.
    markLine: odd.length ? {
      symbol: "none", silent: true, lineStyle: { color: colours.bad, type: "dashed" },
      label: { formatter: (mark) => mark.name, color: colours.bad },
      data: odd.slice(0, MOST_MARKS).map(([x, value]) => ({ xAxis: x, name: value })),
    } : undefined,
  }];
  if (weight) series.push({ ...common, id: `${run.id}:smooth`, data: smoothed(finite, weight), lineStyle: { type, width } });
  return series;
}

// The mean of several curves, and between which values they lie, at GRID places of the axis.
export function spread(curves) {
  const filled = curves.filter((points) => points.length);
  if (!filled.length) return [];
  const first = Math.min(...filled.map((points) => points[0][0]));
  const last = Math.max(...filled.map((points) => points.at(-1)[0]));
  const rows = [];
  for (let at = 0; at <= GRID; at += 1) {
    const x = first + ((last - first) * at) / GRID;
    const values = filled.map((points) => interpolated(points, x)).filter((value) => value !== null);
    if (values.length) rows.push({ x, mean: values.reduce((sum, value) => sum + value, 0) / values.length, low: Math.min(...values), high: Math.max(...values) });
    if (first === last) break;
  }
  return rows;
}

// One line with the mean of a group of runs, in an area from its lowest to its highest curve.
export function groupSeries(group, at, curves, settings, epochsOf, colours) {
  const points = curves.map((curve) => placed(curve, settings, epochsOf(curve.run)).filter(([, value]) => isNumber(value)));
  const rows = spread(settings.smooth ? points.map((values) => smoothed(values, settings.smooth)) : points);
  const hue = colour(colours, at);
  const edge = { type: "line", stack: `${group}:spread`, stackStrategy: "all", symbol: "none", silent: true, lineStyle: { opacity: 0 }, color: hue, tooltip: { show: false } };
  return [
    { ...edge, id: `${group}:low`, data: rows.map((row) => [row.x, row.low]) },
    { ...edge, id: `${group}:high`, data: rows.map((row) => [row.x, row.high - row.low]), areaStyle: { color: hue, opacity: 0.15 } },
    {
      type: "line", id: `${group}:mean`, name: group, color: hue, showSymbol: rows.length < 2, symbolSize: 6,
      data: rows.map((row) => [row.x, row.mean]), lineStyle: { width: 2.5, type: dash(at) }, emphasis: { focus: "series" },
    },
  ];
}

// Sentences about points of a chart that are not drawn.
export function undrawn(curves, settings) {
  const count = (number) => number.toLocaleString("en");
  const points = curves.flatMap((curve) => curve.points);
  const total = curves.reduce((sum, curve) => sum + curve.total, 0);
  const shown = curves.reduce((sum, curve) => sum + Math.min(curve.points.length, curve.total), 0);
  const marks = curves.map((curve) => curve.points.filter((point) => !isNumber(point.value)).length);
  const unmarked = marks.reduce((sum, number) => sum + Math.max(0, number - MOST_MARKS), 0);
  const low = points.filter((point) => isNumber(point.value) && point.value <= 0).length;
  const sentences = [];
  if (shown < total) sentences.push(`${count(shown)} of ${count(total)} points shown: the minimum and maximum of each interval.`);
  if (unmarked) sentences.push(`${count(unmarked)} NaN or infinite points are not shown.`);
  if (low && settings.log) sentences.push(`${count(low)} values of 0 or less are not shown on the log scale.`);
  return sentences.join(" ");
}
