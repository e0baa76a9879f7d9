// Goes to JupyterLab as soon as the server is ready, where the person has asked for that.
function goWhenReady() {
  const url = document.getElementById("notebook-state")?.dataset.openUrl;
  if (url) location.replace(url); // "Back" must not lead here, which would lead there again
}

new MutationObserver(goWhenReady).observe(document.body, {
  attributeFilter: ["data-open-url"],
  childList: true,
  subtree: true,
});
goWhenReady();
