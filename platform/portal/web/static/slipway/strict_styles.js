// Lets libraries write style sheets and style attributes as text, which our Content Security Policy
// forbids: both become objects of the CSSOM, which it allows. For pages with such a library alone.

// Stands for a style element: an empty one in the page would be refused already.
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

document.createElement = (name, ...options) => {
  if (name === "style") return createSheet();
  const element = Document.prototype.createElement.call(document, name, ...options);
  if (name === "span") element.setAttribute = setAttribute;
  return element;
};
