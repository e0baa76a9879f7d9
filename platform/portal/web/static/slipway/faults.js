// A form that came back with faults: the first field at fault has the focus and is in sight.
function toFirst(root) {
  root.querySelector('[aria-invalid="true"]')?.focus();
}

toFirst(document);
document.addEventListener("htmx:after:swap", (event) => {
  // Parts of a page are swapped while somebody types elsewhere: what has the focus keeps it.
  if (event.target instanceof Element && document.activeElement === document.body) toFirst(event.target);
});
