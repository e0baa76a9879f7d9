// Zooming with the pointer: drag over a part of the x axis, hold Shift to move it, double-click to
// see all of it. The buttons beside the charts do the same for the keyboard.
import { chartOf } from "./charts.js";

const LEAST_PX = 6;

export function zoomable(element, zoom) {
  let start = null;
  const brush = document.createElement("div");
  brush.className = "curves-brush";
  brush.hidden = true;
  element.after(brush);

  const at = (event) => event.clientX - element.getBoundingClientRect().left;
  const value = (px) => chartOf(element).convertFromPixel({ xAxisIndex: 0 }, px);

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || element.dataset.bars !== undefined) return;
    start = { px: at(event), moves: event.shiftKey, from: zoom.range() };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (!start) return;
    const [low, high] = [start.px, at(event)].sort((a, b) => a - b);
    if (high - low < LEAST_PX) return;
    if (start.moves) return;
    brush.hidden = false;
    brush.style.left = `${element.offsetLeft + low}px`;
    brush.style.width = `${high - low}px`;
    brush.style.top = `${element.offsetTop}px`;
    brush.style.height = `${element.offsetHeight}px`;
  });
  const end = (event) => {
    if (!start) return;
    const begun = start;
    start = null;
    brush.hidden = true;
    if (event.type === "pointercancel" || Math.abs(at(event) - begun.px) < LEAST_PX) return;
    const [first, last] = [value(begun.px), value(at(event))];
    if (begun.moves) {
      if (begun.from) zoom.set(begun.from.map((edge) => edge - (last - first)));
    } else zoom.set([Math.min(first, last), Math.max(first, last)]);
  };
  element.addEventListener("pointerup", end);
  element.addEventListener("pointercancel", end);
  element.addEventListener("dblclick", () => zoom.set(null));
}
