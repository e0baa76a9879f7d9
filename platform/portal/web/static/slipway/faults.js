// A form that came back with faults: the first field at fault has the focus and is in sight.
function toFirst(root) {
  root.querySelector('[aria-invalid="true"]')?.focus();
}

toFirst(document);
document.addEventListener("htmx:after:swap", (event) => {
  if (event.target instanceof Element) toFirst(event.target);
});
