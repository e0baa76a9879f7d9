// Draws the edges of a lineage graph behind its nodes, and highlights what a node is connected with.

const SVG = "http://www.w3.org/2000/svg";
const frame = document.querySelector("[data-lineage]");

// Returns a curve from the end of one node to the beginning of another. Columns are side by side on
// wide screens, below each other on narrow ones.
function curve(source, target, origin) {
  const from = source.getBoundingClientRect();
  const to = target.getBoundingClientRect();
  const beside = to.left > from.left + 1;
  const start = beside
    ? [from.right, from.top + from.height / 2]
    : [from.left + 24, from.bottom];
  const end = beside ? [to.left, to.top + to.height / 2] : [to.left + 24, to.top];
  const [x1, y1, x2, y2] = [
    start[0] - origin.left, start[1] - origin.top, end[0] - origin.left, end[1] - origin.top,
  ];
  const bend = beside ? [(x2 - x1) / 2, 0] : [0, (y2 - y1) / 2];
  return `M${x1},${y1} C${x1 + bend[0]},${y1 + bend[1]} ${x2 - bend[0]},${y2 - bend[1]} ${x2},${y2}`;
}

function reachable(key, edges, from, to) {
  const keys = new Set([key]);
  for (const reached of keys) {
    for (const edge of edges) if (edge[from] === reached) keys.add(edge[to]);
  }
  return keys;
}

function start() {
  const svg = frame.querySelector("svg");
  const nodes = new Map([...frame.querySelectorAll("[data-node]")].map((node) => [node.dataset.node, node]));
  const edges = JSON.parse(document.getElementById("lineage-edges").textContent)
    .filter(([source, target]) => nodes.has(source) && nodes.has(target));
  const paths = edges.map(() => svg.appendChild(document.createElementNS(SVG, "path")));

  const draw = () => {
    svg.setAttribute("width", frame.scrollWidth);
    svg.setAttribute("height", frame.scrollHeight);
    const origin = svg.getBoundingClientRect();
    edges.forEach(([source, target], place) => {
      paths[place].setAttribute("d", curve(nodes.get(source), nodes.get(target), origin));
    });
  };
  const highlight = (key) => {
    const keys = key === undefined
      ? new Set()
      : new Set([...reachable(key, edges, 0, 1), ...reachable(key, edges, 1, 0)]);
    frame.classList.toggle("lineage-focus", keys.size > 0);
    nodes.forEach((node, name) => node.classList.toggle("lineage-connected", keys.has(name)));
    edges.forEach(([source, target], place) =>
      paths[place].classList.toggle("lineage-connected", keys.has(source) && keys.has(target)));
  };
  const nodeOf = (event) => event.target.closest?.("[data-node]")?.dataset.node;
  frame.addEventListener("pointerover", (event) => highlight(nodeOf(event)));
  frame.addEventListener("pointerleave", () => highlight(undefined));
  frame.addEventListener("focusin", (event) => highlight(nodeOf(event)));
  frame.addEventListener("focusout", () => highlight(undefined));
  frame.classList.add("lineage-drawn");
  new ResizeObserver(draw).observe(frame);
}

if (frame) start();
