// Scalars, histograms and images of TensorBoard's event files, drawn like the curves of metrics.
import { chartOf, endOf, palette, write } from "./charts.js";
import { runSeries, undrawn } from "./curves_series.js";
import { ridgelineOptions } from "./results_charts.js";

const MOST_CHARTS = 60;

const grouped = (entries) => [...Map.groupBy(entries, (entry) => entry.tag)];

function figureOf(name, tall) {
  const figure = document.createElement("figure");
  figure.className = "result-chart";
  const caption = document.createElement("figcaption");
  const key = document.createElement("span");
  key.className = "gallery-key";
  key.textContent = name;
  caption.append(key);
  const chart = document.createElement("div");
  chart.className = tall ? "chart chart-tall" : "chart";
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", name);
  const note = document.createElement("p");
  note.className = "text-secondary small mb-0";
  figure.append(caption, chart, note);
  return { figure, chart, note };
}

// A series of an event file as a curve of a run: what curves_series.js draws.
const curveOf = (series) => ({
  run: series.folder, key: series.tag, total: series.total,
  points: series.points.map(([step, at_s, value]) => ({ step, at_ms: at_s * 1000, value })),
});

function scalarOptions(entries, settings, colours) {
  const isTime = settings.x === "time";
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 26, top: entries.length > 1 ? 34 : 16, bottom: 4, containLabel: true },
    legend: { show: entries.length > 1, type: "scroll", top: 0, textStyle: { color: colours.text } },
    xAxis: { type: isTime ? "time" : "value", scale: true, axisLine: { lineStyle: { color: colours.line } }, splitLine: { show: false }, axisLabel: { color: colours.text, hideOverlap: true, formatter: settings.x === "since" ? "{value} s" : null } },
    yAxis: { type: settings.log ? "log" : "value", scale: true, max: settings.log ? null : endOf(entries[0].tag), splitNumber: 4, splitLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text, formatter: write } },
    tooltip: { trigger: "axis", confine: true, renderMode: "richText", backgroundColor: colours.surface, borderColor: colours.line, textStyle: { color: colours.body }, valueFormatter: write },
    series: entries.flatMap((series, at) => runSeries(curveOf(series), { id: series.folder, name: series.folder || series.tag, at }, settings, [], colours, false)),
  };
}

function drawScalars(section, values) {
  const box = section.querySelector("[data-scalars]");
  const figures = grouped(values.scalars).slice(0, MOST_CHARTS).map(([tag, entries]) => ({ entries, ...figureOf(tag, false) }));
  box.replaceChildren(...figures.map((it) => it.figure));
  const control = (name) => section.querySelector(`[data-${name}]`);
  const draw = () => {
    const settings = { x: control("axis").value, smooth: Number(control("smoothing").value), log: control("log").checked, xlog: false, base: "", pin: new Set() };
    const colours = palette(section);
    for (const { entries, chart, note } of figures) {
      chartOf(chart).setOption(scalarOptions(entries, settings, colours), true);
      const all = entries.map(curveOf);
      note.textContent = undrawn(all, settings).replace(": the minimum and maximum of each interval", "");
    }
  };
  for (const name of ["axis", "smoothing", "log"]) control(name).addEventListener("input", draw);
  section.querySelector(".curves-controls").hidden = !figures.length;
  return draw;
}

function drawHistograms(section, values) {
  const box = section.querySelector("[data-histograms]");
  const figures = values.histograms.slice(0, MOST_CHARTS).map((entry) => ({ entry, ...figureOf(entry.folder ? `${entry.folder}: ${entry.tag}` : entry.tag, true) }));
  box.replaceChildren(...figures.map((it) => it.figure));
  return () => figures.forEach(({ entry, chart, note }) => {
    chartOf(chart).setOption(ridgelineOptions(entry.steps, palette(section)), true);
    note.textContent = entry.total > entry.steps.length ? `${entry.steps.length} of ${entry.total} steps shown.` : "";
  });
}

function drawImages(section, values) {
  const box = section.querySelector("[data-event-images]");
  box.replaceChildren(...grouped(values.images).map(([tag, entries]) => {
    const figure = document.createElement("figure");
    figure.className = "gallery";
    const caption = document.createElement("figcaption");
    const key = document.createElement("span");
    key.className = "gallery-key";
    key.textContent = tag;
    const step = document.createElement("output");
    step.className = "text-secondary small";
    caption.append(key, step);
    const images = document.createElement("div");
    images.className = "gallery-images";
    const slider = document.createElement("input");
    [slider.type, slider.min, slider.max, slider.className] = ["range", "0", String(entries.length - 1), "form-range"];
    slider.value = slider.max;
    slider.hidden = entries.length < 2;
    slider.setAttribute("aria-label", `Step of ${tag}`);
    const show = () => {
      const entry = entries[Number(slider.value)];
      step.textContent = `step ${entry.step}`;
      const image = document.createElement("img");
      [image.src, image.alt] = [entry.source, `${tag}, step ${entry.step}`];
      images.replaceChildren(image);
    };
    slider.addEventListener("input", show);
    show();
    figure.append(caption, images, slider);
    return figure;
  }));
}

function describe(values) {
  const sentences = [values.unread];
  if (values.damaged) sentences.push(`${values.damaged} event file${values.damaged === 1 ? " ends" : "s end"} in an incomplete record; the values before it are shown.`);
  if (values.left_out.length) sentences.push(`Not shown: ${values.left_out.join(", ")}.`);
  if (!values.scalars.length && !values.histograms.length && !values.images.length) sentences.push("The event files hold no scalars, histograms or images.");
  return sentences.filter(Boolean).join(" ");
}

export async function startEvents(root) {
  const section = root.querySelector("[data-events]");
  if (!section) return;
  const state = section.querySelector("[data-events-state]");
  try {
    const answer = await fetch(section.dataset.events, { headers: { Accept: "application/json" } });
    const values = await answer.json();
    if (!answer.ok) throw new Error(values.refused);
    state.textContent = describe(values);
    state.hidden = !state.textContent;
    const drawers = [drawScalars(section, values), drawHistograms(section, values)];
    drawImages(section, values);
    const draw = () => drawers.forEach((drawer) => drawer());
    draw();
    new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
    section.dataset.drawn = "yes";
  } catch (error) {
    state.textContent = error.message || "The event files cannot be read now. Reload the page to try again.";
  }
}
