// The command palette: Ctrl-K (⌘K), type, arrows, Enter. The server finds; this only walks.
const palette = document.getElementById("palette");
const input = document.getElementById("palette-input");
const list = document.getElementById("palette-list");

function options() {
  return [...list.querySelectorAll("[role=option][data-url]")];
}

function choose(option) {
  for (const other of options()) other.setAttribute("aria-selected", String(other === option));
  if (option) {
    input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  } else {
    input.removeAttribute("aria-activedescendant");
  }
}

function chosen() {
  return options().find((option) => option.getAttribute("aria-selected") === "true");
}

function step(by) {
  const all = options();
  if (all.length === 0) return;
  const at = all.indexOf(chosen());
  choose(all[(at + by + all.length) % all.length]);
}

function go(option) {
  if (option) window.location.assign(option.dataset.url);
}

function open() {
  if (palette.open) return;
  palette.showModal();
  input.value = "";
  window.htmx.trigger(input, "palette:open");
}

if (palette) {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (palette.open) palette.close();
      else open();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-open-palette]")) open();
    if (event.target === palette) palette.close();
  });
  input.addEventListener("keydown", (event) => {
    const moves = { ArrowDown: () => step(1), ArrowUp: () => step(-1), Enter: () => go(chosen()) };
    if (moves[event.key]) {
      event.preventDefault();
      moves[event.key]();
    }
  });
  list.addEventListener("click", (event) => go(event.target.closest("[data-url]")));
  list.addEventListener("mousemove", (event) => {
    const option = event.target.closest("[data-url]");
    if (option) choose(option);
  });
  input.addEventListener("htmx:after:swap", () => choose(options()[0]));
}
