// Goes to JupyterLab as soon as the server is ready, where the person has asked for that. Once: the
// page goes on changing (its costs count up), and going again would break off signing in.
const seen = new MutationObserver(goWhenReady);

function goWhenReady() {
  const url = document.getElementById("notebook-state")?.dataset.openUrl;
  if (!url) return;
  seen.disconnect();
  location.replace(url); // "Back" must not lead here, which would lead there again
}

// The form of a launch goes on in a tab of its own, which becomes JupyterLab. This one shows the list.
document.addEventListener("submit", ({ target, submitter }) => {
  const then = target.dataset.then;
  if (then && !submitter?.name) setTimeout(() => location.assign(then));
});

seen.observe(document.body, {
  attributeFilter: ["data-open-url"],
  childList: true,
  subtree: true,
});
goWhenReady();
