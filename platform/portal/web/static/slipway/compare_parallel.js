// Parallel coordinates: an axis for each chosen value, a line for each run, brushes that select runs.
// Everything that the pointer does on an axis, the controls below it do as well.
import { write } from "./charts.js";
import { element, fillSelect, fillTable, hasPlace, scaleOf, shade } from "./compare_data.js";

const [HEIGHT, TOP, BOTTOM, LEAST_GAP, HALF] = [340, 46, 44, 118, 14];
const LEAST_PX = 4;
const MOST_TICKS = 14;
const NAMESPACE = "http://www.w3.org/2000/svg";
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function svg(name, attributes = {}, ...content) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...content);
  return made;
}

// Whether a run is in the brush of a column: between two numbers, or one of some categories.
function inBrush(column, brush, at) {
  const value = column.values[at];
  if (value === null) return false;
  return column.isNumber ? value >= brush[0] && value <= brush[1] : brush.includes(column.categories[value]);
}

export function selectionOf(state, byId, runs) {
  const brushes = [...state.brushes].filter(([id]) => state.axes.includes(id) && byId.has(id));
  if (!brushes.length) return null;
  return new Set(runs.filter((run) => brushes.every(([id, brush]) => inBrush(byId.get(id), brush, run.at))).map((run) => run.at));
}

export function colouring(column, fallback) {
  if (!column) return { of: () => fallback, column: null };
  const scale = scaleOf(column, false);
  return { column, scale, of: (at) => (column.values[at] === null ? fallback : shade(scale.at(column.values[at]))) };
}

// The legend of the colours: its ends, and what has none.
export function drawColours(place, colours) {
  const { column } = colours;
  place.hidden = !column;
  if (!column) return;
  const values = column.values.filter((value) => value !== null);
  const bar = element("span", { class: "compare-ramp" });
  bar.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(shade).join(", ")})`;
  const lacking = column.values.length - values.length;
  const ends = values.length ? [write(Math.min(...values)), write(Math.max(...values))] : ["", ""];
  place.replaceChildren(`${column.label}: ${ends[0]} `, bar, ` ${ends[1]}`, ...(lacking ? [`. Grey: ${lacking} run${lacking === 1 ? "" : "s"} without a finite value.`] : []));
}

export class Parallel {
  constructor(root, runs, columns, state, changed) {
    Object.assign(this, { root, runs, columns, state, changed });
    this.byId = new Map(columns.map((it) => [it.id, it]));
    const part = (name) => root.querySelector(`[data-parallel-${name}]`);
    this.parts = { chart: part("chart"), axes: part("axes"), add: part("add"), colour: part("colour"), legend: part("legend"), status: part("status"), note: part("note"), only: part("only"), clear: part("clear"), table: part("table") };
    this.parts.add.addEventListener("change", () => {
      const id = this.parts.add.value;
      if (id) this.update(() => state.axes.push(id));
    });
    this.parts.colour.addEventListener("change", () => this.update(() => { state.colour = this.parts.colour.value; }));
    this.parts.clear.addEventListener("click", () => this.update(() => state.brushes.clear()));
  }

  update(act) {
    act();
    this.changed();
  }

  draw(palette) {
    const { state, byId, parts } = this;
    this.axes = state.axes.map((id) => byId.get(id)).filter(Boolean).map((column) => {
      const isLog = column.isNumber && state.logs.has(column.id);
      return { column, isLog, scale: scaleOf(column, isLog) };
    });
    this.selected = selectionOf(state, byId, this.runs);
    this.colours = colouring(byId.get(state.colour), palette.text);
    this.drawChart(palette);
    drawColours(parts.legend, this.colours);
    fillSelect(parts.add, this.columns.filter((it) => !state.axes.includes(it.id)), "", "Add an axis");
    fillSelect(parts.colour, this.columns.filter((it) => it.isNumber && it.given), byId.has(state.colour) ? state.colour : "", "one colour");
    this.drawControls();
    this.tellSelection();
  }

  y(part) {
    return TOP + (1 - part) * (HEIGHT - TOP - BOTTOM);
  }

  drawChart(palette) {
    const { chart } = this.parts;
    const gap = Math.max(LEAST_GAP, chart.clientWidth / Math.max(1, this.axes.length));
    const width = Math.max(chart.clientWidth, gap * this.axes.length);
    const x = (at) => gap * (at + 0.5);
    const picture = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `Parallel coordinates of ${this.runs.length} runs. The controls below set the axes and what is selected.` });
    // Runs outside of the selection lie behind the others.
    const order = [...this.runs].sort((a, b) => Number(this.isSelected(a.at)) - Number(this.isSelected(b.at)));
    for (const run of order) picture.append(this.line(run, x));
    this.axes.forEach((axis, at) => picture.append(this.axis(axis, x(at), palette)));
    const lacks = this.axes.some(({ column, isLog }) => this.runs.some((run) => !hasPlace(column.values[run.at], isLog)));
    if (lacks) picture.append(svg("text", { x: 4, y: HEIGHT - 6, class: "compare-tick" }, "no value to draw"));
    const left = chart.scrollLeft;
    chart.replaceChildren(picture);
    chart.scrollLeft = left;
  }

  isSelected(at) {
    return this.selected === null || this.selected.has(at);
  }

  // A value without a place on its axis is drawn below all of them, by a dashed part of the line.
  line(run, x) {
    const points = this.axes.map(({ column, isLog, scale }, at) => {
      const value = column.values[run.at];
      const has = hasPlace(value, isLog);
      return { x: x(at), y: has ? this.y(scale.at(value)) : HEIGHT - BOTTOM + 22, has };
    });
    const group = svg("g", { class: `compare-line${this.isSelected(run.at) ? "" : " compare-faded"}`, stroke: this.colours.of(run.at), "data-run": run.id }, svg("title", {}, run.name));
    const parts = { solid: "", dashed: "" };
    points.slice(1).forEach((point, at) => {
      const before = points[at];
      parts[point.has && before.has ? "solid" : "dashed"] += `M${before.x} ${before.y}L${point.x} ${point.y}`;
    });
    if (parts.solid) group.append(svg("path", { d: parts.solid }));
    if (parts.dashed) group.append(svg("path", { d: parts.dashed, "stroke-dasharray": "3 4" }));
    if (points.length === 1) group.append(svg("circle", { cx: points[0].x, cy: points[0].y, r: 3, fill: this.colours.of(run.at) }));
    return group;
  }

  axis({ column, scale }, x, palette) {
    const group = svg("g", { "data-axis-of": column.id });
    group.append(svg("text", { x, y: 16, class: "compare-axis-name" }, short(column.label, 17), svg("title", {}, column.label)));
    group.append(svg("line", { x1: x, x2: x, y1: this.y(1), y2: this.y(0), stroke: palette.text }));
    const every = Math.ceil(scale.ticks.length / MOST_TICKS);
    scale.ticks.filter((_, at) => at % every === 0).forEach((tick) => {
      const text = column.isNumber ? write(tick) : short(column.categories[tick], 14);
      group.append(svg("text", { x: x + 6, y: this.y(scale.at(tick)) + 4, class: "compare-tick" }, text));
    });
    const brush = svg("rect", { x: x - HALF / 2, width: HALF, class: "compare-brush" });
    const edges = this.edges(column, scale);
    this.place(brush, edges);
    const target = svg("rect", { x: x - HALF, width: 2 * HALF, y: TOP - 8, height: HEIGHT - TOP - BOTTOM + 16, class: "compare-target" });
    this.bindBrush(target, brush, column, scale);
    group.append(brush, target);
    return group;
  }

  // Where a brush begins and ends on the scale, 0…1, or null.
  edges(column, scale) {
    const brush = this.state.brushes.get(column.id);
    if (!brush) return null;
    if (column.isNumber) return brush.map((value) => (this.state.logs.has(column.id) && value <= 0 ? 0 : scale.at(value)));
    const places = brush.map((name) => scale.at(column.categories.indexOf(name)));
    return places.length ? [Math.min(...places) - 0.02, Math.max(...places) + 0.02] : null;
  }

  place(brush, edges) {
    brush.toggleAttribute("hidden", !edges);
    if (!edges) return;
    const [low, high] = edges.map((part) => this.y(Math.min(1.02, Math.max(-0.02, part))));
    brush.setAttribute("y", high);
    brush.setAttribute("height", Math.max(2, low - high));
  }

  bindBrush(target, brush, column, scale) {
    const top = () => target.ownerSVGElement.getBoundingClientRect().top;
    const part = (event) => Math.min(1, Math.max(0, 1 - (event.clientY - top() - TOP) / (HEIGHT - TOP - BOTTOM)));
    let start = null;
    target.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = { part: part(event), y: event.clientY };
      target.setPointerCapture(event.pointerId);
    });
    target.addEventListener("pointermove", (event) => {
      if (start) this.place(brush, [start.part, part(event)].sort((a, b) => a - b));
    });
    target.addEventListener("pointercancel", () => {
      start = null;
      this.place(brush, this.edges(column, scale));
    });
    target.addEventListener("pointerup", (event) => {
      if (!start) return;
      const [low, high] = [start.part, part(event)].sort((a, b) => a - b);
      const isClick = Math.abs(event.clientY - start.y) < LEAST_PX;
      start = null;
      if (isClick) this.setBrush(column, null);
      else if (column.isNumber) this.setBrush(column, [scale.back(low), scale.back(high)]);
      else this.setBrush(column, column.categories.filter((_, at) => scale.at(at) >= low && scale.at(at) <= high));
    });
  }

  // Numbers in the address have six digits, and select what they select when it is opened again.
  setBrush(column, brush) {
    this.update(() => {
      if (brush === null || (column.isNumber ? !(brush[0] <= brush[1]) : !brush.length)) this.state.brushes.delete(column.id);
      else this.state.brushes.set(column.id, column.isNumber ? brush.map((value) => Number(write(value))) : brush);
    });
  }

  drawControls() {
    const focused = this.parts.axes.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const open = new Set([...this.parts.axes.querySelectorAll("details[open]")].map((it) => it.dataset.of));
    this.parts.axes.replaceChildren(...this.axes.map((axis, at) => this.control(axis, at, open)));
    if (focused) [...this.parts.axes.querySelectorAll("[aria-label]")].find((it) => it.getAttribute("aria-label") === focused)?.focus();
  }

  control({ column, isLog, scale }, at, open) {
    const { axes, logs, brushes } = this.state;
    const name = column.label;
    const move = (by) => () => this.update(() => {
      const from = axes.indexOf(column.id);
      axes.splice(from, 1);
      axes.splice(Math.max(0, from + by), 0, column.id);
    });
    const button = (text, label, act, disabled = false) => element("button", { type: "button", class: "btn btn-sm btn-ghost curves-toggle", "aria-label": label, disabled, onclick: act }, text);
    const item = element("li", {}, button("←", `Move ${name} left`, move(-1), at === 0), button("→", `Move ${name} right`, move(1), at === this.axes.length - 1), element("span", { class: "compare-control-name", title: name }, name));
    if (column.isNumber) {
      const flip = () => this.update(() => { if (!logs.delete(column.id)) logs.add(column.id); });
      item.append(element("label", { class: "form-check" }, element("input", { type: "checkbox", class: "form-check-input", checked: isLog, "aria-label": `Log axis for ${name}`, onchange: flip }), element("span", { class: "form-check-label" }, "Log")));
      item.append(this.limit(column, 0, `Least ${name}`), "to", this.limit(column, 1, `Largest ${name}`));
    } else item.append(this.choices(column, open));
    if (brushes.has(column.id)) item.append(button("Clear", `Clear the selection by ${name}`, () => this.setBrush(column, null)));
    item.append(button("Remove", `Remove the axis ${name}`, () => this.update(() => {
      axes.splice(axes.indexOf(column.id), 1);
      brushes.delete(column.id);
    })));
    return item;
  }

  limit(column, end, label) {
    const values = column.values.filter((value) => value !== null);
    const outer = values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
    const brush = this.state.brushes.get(column.id);
    const input = element("input", { type: "number", step: "any", class: "form-control form-control-sm", "aria-label": label, placeholder: write(outer[end]), value: brush ? String(brush[end]) : "" });
    input.addEventListener("change", () => {
      const next = [...(brush ?? outer)];
      next[end] = input.value === "" ? outer[end] : Number(input.value);
      if (next[0] > next[1]) next[1 - end] = next[end];
      this.setBrush(column, next[0] <= outer[0] && next[1] >= outer[1] ? null : next);
    });
    return input;
  }

  choices(column, open) {
    const brush = this.state.brushes.get(column.id);
    const boxes = column.categories.map((name) => {
      const box = element("input", { type: "checkbox", class: "form-check-input", checked: !brush || brush.includes(name), "aria-label": `${column.label}: ${name}` });
      box.addEventListener("change", () => {
        const next = (brush ?? column.categories).filter((other) => other !== name);
        if (box.checked) next.push(name);
        this.setBrush(column, next.length === column.categories.length ? null : next);
      });
      return element("label", { class: "form-check" }, box, element("span", { class: "form-check-label" }, short(name, 60)));
    });
    return element("details", { open: open.has(column.id), "data-of": column.id }, element("summary", {}, brush ? `${brush.length} of ${column.categories.length} values` : `${column.categories.length} values`), ...boxes);
  }

  tellSelection() {
    const { status, note, only, clear, table } = this.parts;
    const runs = this.runs.filter((run) => this.isSelected(run.at));
    const isPart = this.selected !== null;
    status.textContent = isPart ? `${runs.length} of ${this.runs.length} runs selected.` : "Drag along an axis to select runs, or set limits below.";
    clear.hidden = !isPart;
    only.hidden = !isPart || !runs.length || runs.length === this.runs.length;
    const query = new URLSearchParams(location.search);
    query.delete("run");
    only.href = `${this.root.dataset.page}?${[...runs.map((run) => `run=${run.id}`), query.toString()].filter(Boolean).join("&")}`;
    const low = this.axes.filter((axis) => axis.isLog).reduce((sum, axis) => sum + axis.column.values.filter((value) => value !== null && value <= 0).length, 0);
    const lacking = this.axes.reduce((sum, axis) => sum + axis.column.values.filter((value) => value === null).length, 0);
    note.textContent = [
      lacking ? `${lacking} value${lacking === 1 ? " is" : "s are"} missing, NaN or infinite: dashed lines lead below the axis.` : "",
      low ? `${low} value${low === 1 ? " is" : "s are"} 0 or less and on no log axis.` : "",
    ].filter(Boolean).join(" ");
    note.hidden = !note.textContent;
    fillTable(table, runs, this.axes.map((axis) => axis.column));
    this.root.dataset.selected = isPart ? String(runs.length) : "";
  }
}
