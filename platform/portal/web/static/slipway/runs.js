// The list of runs: what the selected ones allow, and finding a column among many.
// Without this script every button works, and the server says what it lacks.
function update(form) {
  const selected = form.querySelectorAll('input[name="run"]:checked').length;
  const comparable = form.querySelector('[data-needs="2"]') !== null;
  form.querySelector("[data-chosen]").textContent =
    selected > 1 ? `${selected} runs selected`
      : selected === 1 ? `1 run selected${comparable ? ". Select another one to compare them." : ""}`
        : comparable ? "Select two or more runs to compare them." : "Select the runs to restore.";
  for (const control of form.querySelectorAll("[data-needs]")) {
    const least = Number(control.dataset.needs);
    const lacks = selected < least;
    control.title = lacks ? `Select ${least > 1 ? "two or more runs" : "a run"} first.` : "";
    if (control.tagName === "SUMMARY") {
      control.classList.toggle("disabled", lacks);
      control.setAttribute("aria-disabled", String(lacks));
      if (lacks) control.parentElement.open = false;
    } else {
      control.disabled = lacks;
    }
  }
}

const updateAll = () => document.querySelectorAll("[data-runs-form]").forEach(update);

updateAll();
// A browser that goes back restores the boxes, and a filter replaces the list.
window.addEventListener("pageshow", updateAll);
document.addEventListener("htmx:afterSettle", updateAll);

document.addEventListener("click", (event) => {
  if (event.target.closest('summary[aria-disabled="true"]')) event.preventDefault();
});

document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-runs-form]");
  if (!form) return;
  const boxes = [...form.querySelectorAll('input[name="run"]')];
  const all = form.querySelector("[data-choose-all]");
  if (event.target === all) boxes.forEach((box) => { box.checked = all.checked; });
  const checked = boxes.filter((box) => box.checked).length;
  all.checked = checked === boxes.length;
  all.indeterminate = checked > 0 && checked < boxes.length;
  update(form);
});

document.addEventListener("input", (event) => {
  if (!event.target.matches("[data-columns-find]")) return;
  event.stopPropagation(); // narrowing the choice down is no change of the list
  const words = event.target.value.toLowerCase();
  for (const item of event.target.closest(".columns-panel").querySelectorAll("li")) {
    item.hidden = !item.textContent.toLowerCase().includes(words);
  }
}, true);

// The address of the page also has the settings of the charts, which change without a request.
document.addEventListener("submit", (event) => {
  const form = event.target.closest("[data-view-form]");
  if (form) form.querySelector('[name="query"]').value = window.location.search.slice(1);
}, true);
