// News for the person, spoken by screen readers: what the server left on the page, and what a
// partial update reports by the header HX-Trigger: {"toast": {"text": …, "level": …}}.
const SHOWN_MS = 7000;
const LEVELS = ["success", "info", "warning", "error"];

function show(text, level = "info") {
  const region = document.getElementById("toasts");
  if (!region || !text) return;
  const toast = document.createElement("div");
  toast.className = `slip-toast slip-toast-${LEVELS.includes(level) ? level : "info"}`;
  const words = document.createElement("span");
  words.textContent = text;
  const close = document.createElement("button");
  close.type = "button";
  close.className = "btn-close";
  close.setAttribute("aria-label", "Dismiss");
  close.addEventListener("click", () => toast.remove());
  toast.append(words, close);
  region.append(toast);
  // An error stays until it is read.
  if (level !== "error") setTimeout(() => toast.remove(), SHOWN_MS);
}

for (const message of document.querySelectorAll("#messages [data-level]")) {
  show(message.textContent.trim(), message.dataset.level);
}
document.getElementById("messages")?.remove();
document.addEventListener("toast", (event) => show(event.detail?.text, event.detail?.level));
document.addEventListener("htmx:error", () =>
  show("The portal is not responding. Check the connection and try again.", "error"),
);
