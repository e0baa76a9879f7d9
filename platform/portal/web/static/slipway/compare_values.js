// The table of parameters and metrics: what its form asks for goes to the address, beside the
// settings of the charts, and only the table is fetched again.
const form = document.getElementById("values-form");
const NAMES = ["base", "only", "sort", "find", "row"];
let latest = 0;

async function show(query) {
  latest += 1;
  const requested = latest;
  history.replaceState(history.state, "", `?${query}`);
  const answer = await fetch(location.href, { headers: { "HX-Request": "true" }, cache: "no-store" });
  if (!answer.ok || requested !== latest) return;
  const table = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("values-table");
  const place = document.getElementById("values-table");
  const focused = place.contains(document.activeElement) ? document.activeElement.title : "";
  const left = place.querySelector(".table-responsive")?.scrollLeft ?? 0;
  place.replaceWith(table);
  const region = table.querySelector(".table-responsive");
  if (region) region.scrollLeft = left;
  if (focused) [...table.querySelectorAll(".values-sort")].find((button) => button.title === focused)?.focus();
  document.dispatchEvent(new CustomEvent("slipway:values"));
}

function submit(submitter) {
  const query = new URLSearchParams(location.search);
  const data = submitter?.name ? new FormData(form, submitter) : new FormData(form);
  NAMES.forEach((name) => query.delete(name));
  for (const name of NAMES) {
    const value = data.getAll(name).at(-1);
    if (value) query.set(name, value);
  }
  // Another order keeps the page of the rows; other rows begin with the first page.
  if (submitter?.name === "sort" && new URLSearchParams(location.search).has("row")) query.set("row", new URLSearchParams(location.search).get("row"));
  show(query).catch(() => {}); // the table stays as it was, and the address asks for the new one
}

if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(event.submitter);
  });
  form.addEventListener("change", (event) => {
    submit(null);
    if (event.target.name === "base") document.dispatchEvent(new CustomEvent("slipway:baseline", { detail: event.target.value }));
  });
  // The legend of the charts names the baseline too.
  document.addEventListener("slipway:address", () => {
    const base = new URLSearchParams(location.search).get("base") || form.elements.base.options[0].value;
    if (base === form.elements.base.value) return;
    form.elements.base.value = base;
    submit(null);
  });
}
