// The list of runs: how many are chosen, and finding a column among many.
function count(form) {
  const chosen = form.querySelectorAll('input[name="run"]:checked').length;
  form.querySelector("[data-chosen]").textContent = chosen
    ? `${chosen} run${chosen === 1 ? "" : "s"} selected`
    : "Select runs to compare them.";
}

document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-runs-form]");
  if (!form) return;
  const boxes = [...form.querySelectorAll('input[name="run"]')];
  const all = form.querySelector("[data-choose-all]");
  if (event.target === all) boxes.forEach((box) => { box.checked = all.checked; });
  const checked = boxes.filter((box) => box.checked).length;
  all.checked = checked === boxes.length;
  all.indeterminate = checked > 0 && checked < boxes.length;
  count(form);
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
