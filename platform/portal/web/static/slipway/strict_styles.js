// Lets a library write style sheets and style attributes as text, which our Content Security Policy
// forbids: both become objects of the CSSOM, which it allows.

// Stands for a style element: even an empty one is refused.
function createSheet() {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const element = Document.prototype.createElement.call(document, "template");
  Object.defineProperty(element, "textContent", {
    get: () => Array.from(sheet.cssRules, (rule) => rule.cssText).join("\n"),
    set: (text) => sheet.replaceSync(text),
  });
  return element;
}

function setAttribute(name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

let isBuilding = false;

document.createElement = (name, ...options) => {
  if (name === "style" && isBuilding) return createSheet();
  const element = Document.prototype.createElement.call(document, name, ...options);
  if (name === "span") element.setAttribute = setAttribute;
  return element;
};

// Runs the part of a library that creates its style elements, which it may fill later.
export function withoutStyleElements(build) {
  isBuilding = true;
  try {
    build();
  } finally {
    isBuilding = false;
  }
}
