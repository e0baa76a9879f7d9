// Leads from an address of MLflow's own pages, which its client prints, to the page in the portal.
const place = document.getElementById("mlflow-page");
const { project, home } = place.dataset;
const inProject = project ? `/p/${project}` : "";

// Each pattern of a fragment, and the path it leads to; without a project where the object has none.
const PAGES = [
  [/^#\/experiments\/\d+\/runs\/([0-9a-f]{32})(?:[/?]|$)/, (run) => (project ? `${inProject}/runs/${run}` : `/open/runs/${run}`)],
  [/^#\/experiments\/(\d{1,10})(?:[/?]|$)/, (experiment) => (project ? `${inProject}/experiments/${experiment}` : `/open/experiments/${experiment}`)],
  [/^#\/models\/([^/?]+)\/versions\/(\d{1,9})(?:[/?]|$)/, (name, version) => (project ? `${inProject}/models/${name}/versions/${version}` : home)],
  [/^#\/models\/([^/?]+)(?:[/?]|$)/, (name) => (project ? `${inProject}/models/${name}` : home)],
];

function target(fragment) {
  for (const [pattern, page] of PAGES) {
    const match = pattern.exec(fragment);
    if (match) return page(...match.slice(1));
  }
  return project ? `${inProject}/experiments` : home;
}

document.getElementById("mlflow-page-link").href = target(location.hash);
location.replace(target(location.hash));
