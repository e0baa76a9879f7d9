// Metrics with one value a run, as bars: a curve of one point shows nothing.
import { colour, endOf, write } from "./charts.js";

const MOST_BARS = 12;
const NAME_PX = 110;

// Whether each of the curves has a single finite value, and there is room for a bar for each.
export function areSingle(curves) {
  return curves.length > 0 && curves.length <= MOST_BARS && curves.every((curve) => curve.total === 1 && typeof curve.points[0]?.value === "number");
}

// One bar a run, in the order of the runs, with its value.
export function barOptions(curves, runOf, settings, colours) {
  const bars = curves.map((curve) => ({ run: runOf(curve.run), value: curve.points[0].value }));
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 64, top: 8, bottom: 4, containLabel: true },
    xAxis: {
      type: settings.log ? "log" : "value",
      max: settings.log ? null : endOf(curves[0].key, true),
      splitNumber: 4,
      splitLine: { lineStyle: { color: colours.line } },
      axisLabel: { color: colours.text, formatter: write, hideOverlap: true },
    },
    yAxis: {
      type: "category",
      inverse: true,
      data: bars.map(({ run }) => run.name),
      axisLine: { lineStyle: { color: colours.line } },
      axisTick: { show: false },
      axisLabel: { color: colours.text, width: NAME_PX, overflow: "truncate" },
    },
    series: [{
      type: "bar",
      barMaxWidth: 22,
      label: { show: true, position: "right", color: colours.body, formatter: ({ value }) => write(value) },
      data: bars.map(({ run, value }) => ({ value, itemStyle: { color: colour(colours, run.at) } })),
    }],
  };
}
