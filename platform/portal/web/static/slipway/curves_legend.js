// The legend of curves: which line is which run; hides runs, pins them, names one the baseline.
import { swatch } from "./charts.js";

function toggle(text, label, isOn, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn btn-sm btn-ghost curves-toggle";
  button.textContent = text;
  button.setAttribute("aria-label", label);
  button.setAttribute("aria-pressed", String(isOn));
  button.addEventListener("click", act);
  return button;
}

export function drawLegend(list, runs, settings, colours, changed) {
  const focused = document.activeElement?.closest?.("[data-legend-run]")?.dataset.legendRun;
  const control = [...(document.activeElement?.closest?.("[data-legend-run]")?.querySelectorAll("input, button") ?? [])].indexOf(document.activeElement);
  const flip = (set, id) => {
    if (!set.delete(id)) set.add(id);
    changed();
  };
  list.replaceChildren(...runs.map((run) => {
    const item = document.createElement("li");
    item.dataset.legendRun = run.id;
    const box = document.createElement("input");
    box.type = "checkbox";
    box.className = "form-check-input";
    box.checked = !settings.hide.has(run.id);
    box.setAttribute("aria-label", `Show ${run.name}`);
    box.addEventListener("change", () => flip(settings.hide, run.id));
    const name = document.createElement("a");
    name.href = run.url;
    name.textContent = run.name;
    name.title = run.name;
    name.className = "curves-name";
    item.append(box, swatch(colours, run.colourAt ?? run.at), name);
    if (runs.length > 1) {
      item.append(
        toggle("Pin", `Pin ${run.name}: draw it bold and on top`, settings.pin.has(run.id), () => flip(settings.pin, run.id)),
        toggle("Baseline", `Baseline: compare with ${run.name}`, settings.base === run.id, () => {
          settings.base = settings.base === run.id ? "" : run.id;
          changed();
        }),
      );
    }
    return item;
  }));
  if (focused !== undefined && control >= 0) {
    list.querySelector(`[data-legend-run="${CSS.escape(focused)}"]`)?.querySelectorAll("input, button")[control]?.focus();
  }
}
