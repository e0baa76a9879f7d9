// Questions open over the page when scripts run; without scripts their links lead to a page.
const dialog = document.getElementById("question");

if (dialog) {
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx.target === dialog && !dialog.open) dialog.showModal();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-dismiss]")) {
      event.preventDefault();
      dialog.close();
    }
  });
  dialog.addEventListener("close", () => dialog.replaceChildren());
}

// Selects that act at once send their form; without scripts the form has a button.
document.addEventListener("change", (event) => {
  if (event.target.matches?.("[data-submits]")) event.target.form.requestSubmit();
});

// A password can be looked at while it is typed.
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-reveal]");
  if (!button) return;
  const field = document.getElementById(button.dataset.reveal);
  const shown = field.type === "text";
  field.type = shown ? "password" : "text";
  button.setAttribute("aria-pressed", String(!shown));
});
