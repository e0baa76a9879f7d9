// Charts of spend: dollars a day, and what renting and owning come to over the months.
const charts = new Map();

// The colours of the page as it is now, light or dark.
function palette() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const found = {
    text: read("--tblr-secondary"),
    line: read("--tblr-border-color"),
    surface: read("--tblr-bg-surface"),
    body: read("--tblr-body-color"),
    series: ["--slip-chart-1", "--slip-chart-3"].map(read),
  };
  probe.remove();
  return found;
}

// Two digits that count below ten cents, whole dollars from a thousand on.
function write(value) {
  const amount = Number(value);
  const size = Math.abs(amount);
  const decimals = size < 1000 ? 2 : 0;
  const digits = amount !== 0 && size < 0.1 ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return `$${amount.toLocaleString("en-US", digits)}`;
}

function frame(colours, categories) {
  return {
    animation: false,
    textStyle: { color: colours.text, fontFamily: "Inter Variable, sans-serif" },
    grid: { left: 8, right: 18, top: 28, bottom: 4, containLabel: true },
    xAxis: { type: "category", data: categories, axisLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text, hideOverlap: true } },
    yAxis: { type: "value", splitNumber: 3, splitLine: { lineStyle: { color: colours.line } }, axisLabel: { color: colours.text, formatter: write } },
    legend: { show: false },
    // Drawn on the canvas: a tooltip of HTML would need styles inside the page.
    tooltip: { trigger: "axis", renderMode: "richText", backgroundColor: colours.surface, borderColor: colours.line, textStyle: { color: colours.body }, valueFormatter: write },
  };
}

function ofDays(element, colours) {
  const days = JSON.parse(element.dataset.days);
  const shown = frame(colours, days.map(([day]) => day.slice(5)));
  shown.series = [{ type: "bar", color: colours.series[0], barMaxWidth: 28, data: days.map(([, amount]) => amount) }];
  return shown;
}

function ofCurves(element, colours) {
  const curves = JSON.parse(element.dataset.curves);
  const shown = frame(colours, curves.renting.map((_, month) => String(month)));
  shown.legend = { show: true, top: 0, textStyle: { color: colours.text } };
  shown.series = [["Renting", curves.renting], ["Owning", curves.owning]].map(([name, data], at) => ({ type: "line", name, showSymbol: false, lineStyle: { width: 2 }, color: colours.series[at], data }));
  return shown;
}

function draw() {
  if (!window.echarts) return;
  const colours = palette();
  for (const [id, options] of [["chart-days", ofDays], ["chart-curves", ofCurves]]) {
    const element = document.getElementById(id);
    if (!element) continue;
    const known = charts.get(id);
    if (known && known.getDom() !== element) known.dispose();
    if (!known || known.isDisposed()) charts.set(id, window.echarts.init(element, null, { renderer: "canvas" }));
    charts.get(id).setOption(options(element, colours), true);
  }
}

draw();
addEventListener("load", draw);
document.addEventListener("htmx:after:swap", draw);
new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
addEventListener("resize", () => charts.forEach((chart) => chart.resize()));
