// Remembers which groups of the navigation are open. The server reads the cookie, so that nothing
// moves after the first paint. Opening a group's own page does not count as a choice.
const COOKIE = "slipway-navigation";

function opened() {
  const match = document.cookie.match(new RegExp(`(?:^|; )${COOKIE}=([^;]*)`));
  return new Set(match ? match[1].split(".").filter(Boolean) : []);
}

document.addEventListener("click", (event) => {
  const group = event.target.closest?.("summary")?.closest("[data-navigation-group]");
  if (!group) return;
  const names = opened();
  // The click comes before the browser changes the state.
  if (group.open) names.delete(group.dataset.navigationGroup);
  else names.add(group.dataset.navigationGroup);
  document.cookie = `${COOKIE}=${[...names].join(".")}; path=/; max-age=31536000; SameSite=Lax`;
});
