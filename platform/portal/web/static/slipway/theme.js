// Runs before the first paint, so that no page flashes in the wrong theme. The choice stays in the
// browser: "light", "dark", or nothing for what the system prefers.
(() => {
  const KEY = "slipway-theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      const value = localStorage.getItem(KEY);
      return value === "light" || value === "dark" ? value : "system";
    } catch {
      return "system";
    }
  }

  function apply() {
    const choice = stored();
    const dark = choice === "dark" || (choice === "system" && system.matches);
    document.documentElement.setAttribute("data-bs-theme", dark ? "dark" : "light");
    document.documentElement.setAttribute("data-theme-choice", choice);
    document.documentElement.classList.toggle("dark-mode", dark); // for Swagger UI
    // JupyterLab has another origin: the portal hands the theme over when it opens.
    document.cookie = `${KEY}=${dark ? "dark" : "light"}; path=/; max-age=31536000; SameSite=Lax`;
  }

  function mark() {
    const choice = stored();
    for (const button of document.querySelectorAll("[data-choose-theme]")) {
      button.setAttribute("aria-pressed", String(button.dataset.chooseTheme === choice));
    }
  }

  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", mark);
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-choose-theme]");
    if (!button) return;
    const choice = button.dataset.chooseTheme;
    try {
      if (choice === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, choice);
    } catch {
      // A browser that forbids storage forgets the choice on the next page.
    }
    apply();
    mark();
  });
  window.addEventListener("storage", () => {
    apply();
    mark();
  });
})();
