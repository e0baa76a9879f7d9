// Buttons that put the text of another element into the clipboard.
const SAID_MS = 2000;

async function write(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Plain http on another machine has no clipboard API.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser refuses");
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const status = button.querySelector("[data-copy-status]");
  try {
    await write(source.value ?? source.textContent.trim());
    button.classList.add("is-copied");
    if (status) status.textContent = "Copied";
  } catch {
    if (status) status.textContent = "Press Ctrl-C";
    window.getSelection()?.selectAllChildren(source);
  }
  setTimeout(() => {
    button.classList.remove("is-copied");
    if (status) status.textContent = "Copy";
  }, SAID_MS);
});
