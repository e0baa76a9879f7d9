// A scatter plot of any two values. A point is a run: the pointer or the arrow keys show its values,
// a click or Enter opens it.
import { chartOf, endOf } from "./charts.js";
import { fillSelect, fillTable, hasPlace, shown } from "./compare_data.js";
import { colouring, drawColours } from "./compare_parallel.js";

export class Scatter {
  constructor(root, runs, columns, state, changed) {
    Object.assign(this, { root, runs, columns, state });
    this.byId = new Map(columns.map((it) => [it.id, it]));
    const part = (name) => root.querySelector(`[data-scatter-${name}]`);
    this.parts = { chart: part("chart"), x: part("x"), y: part("y"), colour: part("colour"), xlog: part("xlog"), ylog: part("ylog"), legend: part("legend"), note: part("note"), at: part("at"), table: part("table") };
    for (const name of ["x", "y", "colour"]) {
      this.parts[name].addEventListener("change", () => {
        state[name] = this.parts[name].value;
        changed();
      });
    }
    for (const name of ["xlog", "ylog"]) {
      this.parts[name].addEventListener("change", () => {
        state[name] = this.parts[name].checked;
        changed();
      });
    }
    this.current = -1;
    this.parts.chart.addEventListener("keydown", (event) => this.key(event));
    this.parts.chart.addEventListener("blur", () => this.point(-1));
  }

  column(name) {
    return this.byId.get(this.state[name]);
  }

  draw(palette, selected) {
    const [x, y] = [this.column("x"), this.column("y")];
    if (!x || !y) return;
    const { parts, state } = this;
    fillSelect(parts.x, this.columns, x.id);
    fillSelect(parts.y, this.columns, y.id);
    fillSelect(parts.colour, this.columns.filter((it) => it.isNumber && it.given), this.column("colour")?.id ?? "", "one colour");
    const logs = { x: state.xlog && x.isNumber, y: state.ylog && y.isNumber };
    for (const [name, column] of [["x", x], ["y", y]]) {
      parts[`${name}log`].checked = logs[name];
      parts[`${name}log`].disabled = !column.isNumber;
    }
    const colours = colouring(this.column("colour"), this.column("colour") ? palette.text : palette.series[0]);
    this.points = this.runs
      .filter((run) => hasPlace(x.values[run.at], logs.x) && hasPlace(y.values[run.at], logs.y))
      .sort((a, b) => x.values[a.at] - x.values[b.at] || y.values[a.at] - y.values[b.at]);
    const faded = (run) => selected !== null && !selected.has(run.at);
    const chart = chartOf(parts.chart);
    chart.setOption({
      animation: false,
      textStyle: { color: palette.text, fontFamily: "Inter Variable, sans-serif" },
      grid: { left: 12, right: 28, top: 34, bottom: 28, containLabel: true },
      xAxis: { ...this.axis(x, logs.x, palette), nameLocation: "middle", nameGap: 30 },
      yAxis: { ...this.axis(y, logs.y, palette), nameTextStyle: { color: palette.text, align: "left" } },
      tooltip: { trigger: "item", confine: true, backgroundColor: palette.surface, borderColor: palette.line, textStyle: { color: palette.body }, formatter: (mark) => this.readout(this.points[mark.dataIndex]) },
      series: [{
        type: "scatter",
        symbolSize: 11,
        cursor: "pointer",
        emphasis: { scale: 1.6, itemStyle: { borderColor: palette.body, borderWidth: 2 } },
        data: this.points.map((run) => ({ value: [x.values[run.at], y.values[run.at]], itemStyle: { color: colours.of(run.at), opacity: faded(run) ? 0.15 : 0.9 } })),
      }],
    }, true);
    chart.off("click");
    chart.on("click", (event) => { location.href = this.points[event.dataIndex].url; });
    this.current = -1;
    drawColours(parts.legend, colours);
    this.tell(x, y, logs);
    fillTable(parts.table, this.runs, [x, y, ...(colours.column ? [colours.column] : [])]);
    this.root.dataset.points = String(this.points.length);
  }

  axis(column, isLog, palette) {
    return {
      type: !column.isNumber ? "category" : isLog ? "log" : "value",
      data: column.isNumber ? undefined : column.categories,
      name: column.label.length > 40 ? `${column.label.slice(0, 39)}…` : column.label,
      scale: true,
      max: column.isNumber && !isLog ? endOf(column.label) : null,
      nameTextStyle: { color: palette.text },
      axisLabel: { color: palette.text, hideOverlap: true },
      axisLine: { lineStyle: { color: palette.line } },
      splitLine: { lineStyle: { color: palette.line } },
    };
  }

  lines(run) {
    const columns = [...new Set([this.column("x"), this.column("y"), this.column("colour")])].filter(Boolean);
    return columns.map((column) => `${column.label}: ${shown(column.texts[run.at])}`);
  }

  readout(run) {
    const box = document.createElement("div");
    for (const text of [run.name, ...this.lines(run)]) {
      const line = document.createElement("div");
      line.textContent = text;
      if (text === run.name) line.className = "curves-readout-head";
      box.append(line);
    }
    return box;
  }

  tell(x, y, logs) {
    const lacking = this.runs.filter((run) => x.values[run.at] === null || y.values[run.at] === null).length;
    const low = this.runs.length - this.points.length - lacking;
    this.parts.note.textContent = [
      lacking ? `${lacking} of ${this.runs.length} runs lack${lacking === 1 ? "s" : ""} a finite value of ${x.label} or ${y.label}.` : "",
      low ? `${low} run${low === 1 ? " has" : "s have"} a value of 0 or less and ${low === 1 ? "is" : "are"} not on a log axis.` : "",
    ].filter(Boolean).join(" ");
    this.parts.note.hidden = !this.parts.note.textContent;
    this.parts.chart.setAttribute("aria-label", `Scatter plot of ${y.label} against ${x.label}, ${this.points.length} runs. Arrow keys move between runs, Enter opens one.`);
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
    const last = (this.points?.length ?? 0) - 1;
    if (last < 0) return;
    if (event.key === "Enter" && this.current >= 0) location.href = this.points[this.current].url;
    else if (event.key === "Escape") this.point(-1);
    else if (event.key === "Home") this.point(0);
    else if (event.key === "End") this.point(last);
    else if (steps[event.key]) this.point(Math.min(last, Math.max(0, this.current + steps[event.key])));
    else return;
    event.preventDefault();
  }

  // Show the values of one run as the pointer does, and tell them to screen readers.
  point(at) {
    const chart = chartOf(this.parts.chart);
    chart.dispatchAction({ type: "downplay", seriesIndex: 0 });
    chart.dispatchAction(at < 0 ? { type: "hideTip" } : { type: "showTip", seriesIndex: 0, dataIndex: at });
    if (at >= 0) chart.dispatchAction({ type: "highlight", seriesIndex: 0, dataIndex: at });
    this.current = at;
    this.parts.at.textContent = at < 0 ? "" : [this.points[at].name, ...this.lines(this.points[at])].join(", ");
  }
}
