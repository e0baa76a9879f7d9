// Whatever scrolls is reached by the keyboard: frames of tables, code, pictures and lineage.
const FRAMES = [
  ".table-responsive", ".lineage-frame", ".report-table", ".compare-chart", ".artifact-markdown", ".artifact-text",
  ".written pre", ".docs-code pre", ".nb-scroll", ".nb-picture", ".nb-markdown pre", ".nb-markdown table", ".diff", ".requirements",
].join(", ");
const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

function update() {
  for (const frame of document.querySelectorAll(FRAMES)) {
    const scrolls = frame.scrollWidth > frame.clientWidth || frame.scrollHeight > frame.clientHeight;
    if (!scrolls || frame.hasAttribute("tabindex") || frame.querySelector(FOCUSABLE)) continue;
    frame.tabIndex = 0;
    if (frame.localName !== "div") continue;
    const title = frame.closest("section[aria-labelledby]")?.getAttribute("aria-labelledby");
    if (title) {
      frame.setAttribute("role", "group");
      frame.setAttribute("aria-labelledby", title);
    }
  }
}

update();
addEventListener("load", update);
addEventListener("resize", update);
document.addEventListener("htmx:after:swap", update);
