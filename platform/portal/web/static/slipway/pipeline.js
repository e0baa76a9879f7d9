// The graph of a pipeline: dagre places the steps, and this draws the edges between them. The steps reload
// while the run goes on; then they are placed again before they are painted, and open lists stay open.
const SVG = "http://www.w3.org/2000/svg";
// Narrower than this, beside a log or on a phone, steps are placed from top to bottom.
const LEAST_ACROSS_PX = 640;
const content = document.getElementById("content");
const edges = JSON.parse(document.getElementById("pipeline-edges").textContent);
const open = new Set();
const size = { width: "", height: "" };
let wasNarrow = false;

// Returns a smooth line through the points of an edge.
function curve(points) {
  const [first, ...others] = points;
  const last = others.pop();
  const bends = others.map((point, at) => {
    const next = others[at + 1];
    const end = next ? { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 } : last;
    return `Q${point.x},${point.y} ${end.x},${end.y}`;
  });
  return `M${first.x},${first.y} ${bends.length ? bends.join(" ") : `L${last.x},${last.y}`}`;
}

const isNarrow = (frame) => frame.clientWidth < LEAST_ACROSS_PX;

// Names of steps may be names of properties of objects, so dagre gets numbers.
function place(nodes) {
  const keys = new Map(nodes.map((node, at) => [node.dataset.node, `n${at}`]));
  const graph = new window.dagre.graphlib.Graph();
  graph.setGraph({ rankdir: wasNarrow ? "TB" : "LR", nodesep: 16, ranksep: 32, marginx: 2, marginy: 2 });
  for (const node of nodes) {
    graph.setNode(keys.get(node.dataset.node), { width: node.offsetWidth, height: node.offsetHeight });
  }
  for (const [source, target] of edges) graph.setEdge(keys.get(source), keys.get(target), {});
  window.dagre.layout(graph);
  return graph;
}

function draw() {
  const frame = document.querySelector("[data-flow]");
  if (!window.dagre || !frame) return;
  const canvas = frame.querySelector(".flow-canvas");
  const svg = frame.querySelector(".flow-edges");
  const nodes = [...frame.querySelectorAll("[data-node]")];
  frame.classList.add("flow-drawn");
  Object.assign(canvas.style, size); // so that the frame stays scrolled while nodes are measured
  wasNarrow = isNarrow(frame);
  const graph = place(nodes);
  nodes.forEach((node, at) => {
    const { x, y, width, height } = graph.node(`n${at}`);
    node.style.left = `${x - width / 2}px`;
    node.style.top = `${y - height / 2}px`;
  });
  const { width, height } = graph.graph();
  size.width = `${Math.ceil(width)}px`;
  size.height = `${Math.ceil(height)}px`;
  Object.assign(canvas.style, size);
  svg.setAttribute("width", Math.ceil(width));
  svg.setAttribute("height", Math.ceil(height));
  const paths = graph.edges().map((edge) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", curve(graph.edge(edge).points));
    path.setAttribute("marker-end", "url(#flow-arrow)");
    return path;
  });
  svg.replaceChildren(svg.querySelector("defs"), ...paths);
}

function update() {
  for (const list of content.querySelectorAll("details[data-of]")) list.open = open.has(list.dataset.of);
  draw();
  observer.takeRecords();
}

// Tells whether steps were reloaded. Durations that count on, and the log, do not move them.
function concerns({ target }) {
  if (target.contains(document.getElementById("pipeline-graph"))) return true;
  return target.matches("#pipeline-steps, :is(#pipeline-graph, #pipeline-steps) :not(.counted, time)");
}

const observer = new MutationObserver((changes) => changes.some(concerns) && update());
content.addEventListener("click", ({ target }) => {
  const list = target.closest("summary")?.closest("details[data-of]");
  if (!list) return;
  if (list.open) open.delete(list.dataset.of);
  else open.add(list.dataset.of);
});
draw();
observer.observe(content, { attributeFilter: ["class", "style", "open"], childList: true, subtree: true });
addEventListener("resize", () => {
  const frame = document.querySelector("[data-flow]");
  if (frame && isNarrow(frame) !== wasNarrow) update();
});
addEventListener("load", update);
document.fonts.ready.then(update);
