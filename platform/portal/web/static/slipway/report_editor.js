// The editor of a report: blocks as forms, written as JSON into the field that is sent. Without
// scripts that field is edited itself.
import { pickObject } from "./report_picker.js";

const KINDS = {
  text: { label: "Text", empty: { text: "" } },
  chart: { label: "Chart of runs", empty: { runs: [], metrics: [] } },
  runs: { label: "Table of runs", empty: { filter: "", order: "", columns: [], limit: 10 } },
  run: { label: "Run", empty: {}, pick: "run" },
  model_version: { label: "Model version", empty: {}, pick: "model_version" },
  endpoint: { label: "Endpoint", empty: { range: "24h" }, pick: "endpoint" },
  artifact: { label: "Image or file of a run", empty: {}, pick: "artifact" },
};
const RANGES = [["15m", "Last 15 minutes"], ["1h", "Last hour"], ["6h", "Last 6 hours"], ["24h", "Last 24 hours"], ["7d", "Last 7 days"], ["30d", "Last 30 days"], ["90d", "Last 90 days"]];
const form = document.getElementById("report-form");
const field = document.getElementById("id_blocks");
const editor = document.getElementById("report-blocks");
const names = JSON.parse(document.getElementById("report-labels")?.textContent ?? "{}");
let blocks = [];
let fields = 0;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const button = (text, act, className = "btn btn-sm") => {
  const made = element("button", { type: "button", className, textContent: text });
  made.addEventListener("click", act);
  return made;
};

function labelled(text, input) {
  fields += 1;
  input.id = `report-field-${fields}`;
  return element("div", {}, element("label", { className: "form-label", htmlFor: input.id, textContent: text }), input);
}

function input(block, name, label, options = {}) {
  const { list, number, ...properties } = options;
  const made = element("input", { className: "form-control", autocomplete: "off", spellcheck: false, ...properties });
  made.value = list ? (block[name] ?? []).join(", ") : block[name] ?? "";
  made.addEventListener("input", () => {
    if (list) block[name] = made.value.split(",").map((part) => part.trim()).filter(Boolean);
    else block[name] = number ? Number(made.value) : made.value;
    store();
  });
  return labelled(label, made);
}

function select(block, name, label, options) {
  const made = element("select", { className: "form-select" }, ...options.map(([value, text]) => element("option", { value, textContent: text })));
  made.value = block[name] ?? options[0][0];
  made.addEventListener("change", () => {
    block[name] = made.value;
    store();
  });
  return labelled(label, made);
}

function checkbox(block, name, label) {
  const made = element("input", { type: "checkbox", className: "form-check-input", checked: Boolean(block[name]) });
  made.addEventListener("change", () => {
    block[name] = made.checked;
    store();
  });
  return element("label", { className: "form-check" }, made, element("span", { className: "form-check-label", textContent: label }));
}

function chosen(values, text, what) {
  return element("div", { className: "report-chosen" }, ...values.map((value) => {
    const made = button(`${text(value)} ×`, () => {
      values.splice(values.indexOf(value), 1);
      draw();
    });
    made.setAttribute("aria-label", `Remove the ${what} ${text(value)}`);
    return made;
  }));
}

function pick(kind, act, extra = {}) {
  return pickObject(form.dataset.pick, kind, extra, (item) => {
    if (item.fields.run) names[item.fields.run] = names[item.fields.run] ?? item.label;
    act(item.fields);
    draw();
  });
}

const runName = (id) => names[id] ?? id.slice(0, 8);
const fieldsOf = {
  text(block) {
    const area = element("textarea", { className: "form-control", rows: 8, maxLength: 20000, value: block.text ?? "" });
    area.addEventListener("input", () => {
      block.text = area.value;
      store();
    });
    return [labelled("Markdown: headings, lists, tables, links and code", area)];
  },
  chart(block) {
    const add = (list, value) => list.includes(value) || list.push(value);
    return [
      element("div", { className: "form-label", textContent: "Runs" }), chosen(block.runs, runName, "run"),
      button("Add a run", () => pick("run", ({ run }) => add(block.runs, run))),
      element("div", { className: "form-label mt-3", textContent: "Metrics" }), chosen(block.metrics, (key) => key, "metric"),
      ...(block.runs.length ? [button("Add a metric", () => pick("metric", ({ metric }) => add(block.metrics, metric), { run: block.runs }))] : []),
      element("div", { className: "report-fields" },
        select(block, "axis", "X axis", [["step", "step"], ["time", "time"]]),
        input(block, "smooth", "Smoothing, 0 to 0.99", { type: "number", min: 0, max: 0.99, step: 0.01, number: true }),
        checkbox(block, "log_scale", "Log scale"), input(block, "caption", "Caption", { maxLength: 200 })),
    ];
  },
  runs(block) {
    return [
      button("Take over a saved view", () => pick("view", (view) => Object.assign(block, view))),
      element("div", { className: "report-fields" },
        input(block, "filter", "Filter", { maxLength: 6000, placeholder: "metrics.loss < 0.5" }),
        input(block, "search", "Words", { maxLength: 200 }),
        input(block, "order", "Sort by", { maxLength: 300, placeholder: "-metrics.accuracy" }),
        input(block, "columns", "Columns, separated by commas", { list: true, placeholder: "metrics.loss, params.lr" }),
        input(block, "limit", "Rows, at most 50", { type: "number", min: 1, max: 50, number: true }),
        input(block, "caption", "Caption", { maxLength: 200 })),
    ];
  },
  run: (block) => object(block, "run", block.run && runName(block.run)),
  model_version: (block) => object(block, "model_version", block.model && `${block.model}, version ${block.version}`),
  endpoint: (block) => [...object(block, "endpoint", block.endpoint), select(block, "range", "Time range", RANGES)],
  artifact: (block) => object(block, "artifact", block.path && `${block.path} of ${runName(block.run)}`),
};

function object(block, kind, text) {
  const choose = button(text ? "Choose another" : "Choose", () => choice(kind, (picked) => Object.assign(block, picked)));
  return [element("p", { className: "mb-2", textContent: text || "Nothing chosen yet." }), choose,
    element("div", { className: "report-fields" }, input(block, "caption", "Caption", { maxLength: 200 }))];
}

// A file is chosen in two steps: its run, then the file in the folders of the run.
function choice(kind, act) {
  if (kind !== "artifact") return pick(kind, act);
  return pick("run", ({ run }) => fileOf(run, "", act));
}

function fileOf(run, folder, act) {
  return pick("artifact", (picked) => (picked.folder ? fileOf(run, picked.folder, act) : act({ run, path: picked.path })), { run: [run], folder });
}

function card(block, at) {
  const move = (by) => {
    blocks.splice(at + by, 0, blocks.splice(at, 1)[0]);
    draw();
    editor.children[at + by]?.querySelector("button")?.focus();
  };
  const label = KINDS[block.kind]?.label ?? block.kind;
  const head = element("div", { className: "report-edit-head" }, element("h3", { textContent: `${at + 1}. ${label}` }),
    ...(at > 0 ? [named(button("↑", () => move(-1)), `Move block ${at + 1} up`)] : []),
    ...(at < blocks.length - 1 ? [named(button("↓", () => move(1)), `Move block ${at + 1} down`)] : []),
    named(button("Remove", () => {
      blocks.splice(at, 1);
      draw();
    }, "btn btn-sm btn-quiet-danger"), `Remove block ${at + 1}`));
  return element("section", { className: "report-edit", ariaLabel: `Block ${at + 1}: ${label}` }, head, ...(fieldsOf[block.kind]?.(block) ?? []));
}

function named(made, name) {
  made.setAttribute("aria-label", name);
  return made;
}

function store() {
  field.value = JSON.stringify(blocks);
}

function draw() {
  store();
  const offers = Object.entries(KINDS).map(([kind, { label, empty, pick: first }]) => button(label, () => {
    const block = { kind, ...structuredClone(empty) };
    const add = () => {
      blocks.push(block);
      draw();
      editor.children[blocks.length - 1]?.scrollIntoView({ block: "nearest" });
    };
    if (first) choice(first, (picked) => {
      Object.assign(block, picked);
      add();
    });
    else add();
  }));
  editor.replaceChildren(...blocks.map(card), element("div", { className: "report-add" }, element("span", { className: "fw-medium", textContent: "Add:" }), ...offers));
}

function read() {
  try {
    const parsed = JSON.parse(field.value || "[]");
    return Array.isArray(parsed) && parsed.every((block) => block && KINDS[block.kind]) ? parsed : null;
  } catch {
    return null;
  }
}

const parsed = form && read();
// JSON that the editor does not understand stays in its field, with the fault beside it.
if (parsed) {
  blocks = parsed.map((block) => ({ ...structuredClone(KINDS[block.kind].empty), ...block }));
  const faults = document.getElementById("id_blocks_error");
  if (faults) editor.before(faults);
  document.getElementById("report-json").hidden = true;
  editor.hidden = false;
  draw();
}
