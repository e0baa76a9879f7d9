// A dialog that finds objects of the project by a few letters, and hands the chosen one over.
const dialog = document.getElementById("report-picker");
const TITLES = { run: "Choose a run", metric: "Choose a metric", view: "Choose a saved view", model_version: "Choose a model version", endpoint: "Choose an endpoint", artifact: "Choose a file" };
const DELAY_MS = 150;

function lines(items, act) {
  if (!items.length) return [Object.assign(document.createElement("li"), { className: "text-secondary", textContent: "Nothing matches." })];
  return items.map((item) => {
    const line = document.createElement("li");
    const choose = Object.assign(document.createElement("button"), { type: "button" });
    const label = Object.assign(document.createElement("span"), { className: "fw-medium", textContent: item.label });
    const detail = Object.assign(document.createElement("span"), { className: "text-secondary small", textContent: item.detail });
    choose.append(label, detail);
    choose.addEventListener("click", () => {
      dialog.close();
      act(item);
    });
    line.append(choose);
    return line;
  });
}

export function pickObject(address, kind, extra, act) {
  const title = Object.assign(document.createElement("h2"), { className: "card-title", textContent: TITLES[kind] });
  const input = Object.assign(document.createElement("input"), { type: "search", className: "form-control mt-2", placeholder: "Type a part of the name", autocomplete: "off", spellcheck: false });
  input.setAttribute("aria-label", TITLES[kind]);
  const list = Object.assign(document.createElement("ul"), { className: "report-results" });
  const close = Object.assign(document.createElement("button"), { type: "button", className: "btn mt-3", textContent: "Cancel" });
  close.addEventListener("click", () => dialog.close());
  const body = Object.assign(document.createElement("div"), { className: "report-picker-body" });
  body.append(title, input, list, close);
  dialog.replaceChildren(body);
  // Both belong to this picker: a search that an earlier picker still waits for
  // must not make the answers of this one look old.
  let timer = 0;
  let asked = 0;
  const search = async () => {
    asked += 1;
    const number = asked;
    const query = new URLSearchParams({ kind, q: input.value });
    for (const [name, value] of Object.entries(extra)) [value].flat().forEach((part) => query.append(name, part));
    const answer = await fetch(`${address}?${query}`, { headers: { Accept: "application/json" } }).catch(() => null);
    if (number !== asked) return;
    if (!answer?.ok) {
      list.replaceChildren(Object.assign(document.createElement("li"), { className: "text-secondary", textContent: "The search failed. Try again." }));
      return;
    }
    list.replaceChildren(...lines((await answer.json()).items, act));
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, DELAY_MS);
  });
  if (!dialog.open) dialog.showModal();
  input.focus();
  return search();
}
