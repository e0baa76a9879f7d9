// Results of runs: galleries with a slider for the step, and images that the portal refuses.
import { resizeCharts } from "./charts.js";
import { startCharts } from "./results_charts.js";
import { startEvents } from "./results_events.js";
import { startGalleries } from "./results_galleries.js";

function start(root) {
  startGalleries(root);
  startCharts(root);
  startEvents(root);
}

async function load(place) {
  const answer = await fetch(place.dataset.results, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const results = page.getElementById("run-results");
  if (!results || results.querySelector("#no-results")) return;
  results.removeAttribute("id");
  place.replaceChildren(results);
  place.hidden = false;
  start(place);
}

const place = document.getElementById("results-place");
start(document);
if (place) load(place).catch(() => {}); // the artifacts are listed below all the same
addEventListener("resize", resizeCharts);
