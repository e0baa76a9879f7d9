// Sections of the page Compare that are loaded after it, as pages of their own have them: importance
// of parameters, code and environment. The address of the page carries what they show.
const places = [...document.querySelectorAll("[data-section]")];
const shown = new Map();
const namesOf = (place) => place.dataset.names.split(" ");

async function load(place) {
  const query = new URLSearchParams(location.search);
  const requested = namesOf(place).filter((name) => query.has(name)).map((name) => `&${name}=${encodeURIComponent(query.get(name))}`).join("");
  if (requested === shown.get(place)) return;
  shown.set(place, requested);
  const answer = await fetch(place.dataset.url + requested, { headers: { Accept: "text/html" } });
  if (!answer.ok || requested !== shown.get(place)) return;
  const section = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(place.dataset.section);
  if (!section) return;
  const focused = place.contains(document.activeElement) ? document.activeElement.name : "";
  place.replaceChildren(section);
  place.hidden = false;
  if (focused) place.querySelector(`[name="${CSS.escape(focused)}"]:not([type="hidden"])`)?.focus();
}

const refresh = () => places.forEach((place) => load(place).catch(() => shown.delete(place)));

function choose(place, form) {
  const query = new URLSearchParams(location.search);
  const before = query.get("base") ?? "";
  for (const name of namesOf(place)) query.set(name, form.elements[name].value);
  history.replaceState(history.state, "", `?${query}`);
  const base = query.get("base") ?? "";
  if (base !== before) document.dispatchEvent(new CustomEvent("slipway:baseline", { detail: base }));
  refresh();
}

for (const place of places) {
  place.addEventListener("change", (event) => event.target.form && choose(place, event.target.form));
  place.addEventListener("submit", (event) => {
    event.preventDefault();
    choose(place, event.target);
  });
}
if (places.length) {
  for (const name of ["slipway:address", "slipway:values"]) document.addEventListener(name, refresh);
  refresh();
}
