// The API reference: Swagger UI, with samples in curl, Python and the command line in each operation.
const LANGUAGES = [
  ["curl", "curl"],
  ["python", "Python"],
  ["cli", "Command line"],
];
const REMEMBERED = "slipway.reference.language";
const samples = JSON.parse(document.getElementById("code-samples").textContent);
let language = remembered();
let made = 0;

function remembered() {
  try {
    const name = localStorage.getItem(REMEMBERED);
    return LANGUAGES.some(([known]) => known === name) ? name : "curl";
  } catch {
    return "curl";
  }
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Selects the language in every open operation, so that one choice counts for the page.
function select(name) {
  language = name;
  try {
    localStorage.setItem(REMEMBERED, name);
  } catch {
    // Without storage the choice lasts until the page is left.
  }
  for (const block of document.querySelectorAll(".samples")) show(block);
}

function show(block) {
  for (const tab of block.querySelectorAll("[role=tab]")) {
    const chosen = tab.dataset.language === language;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls"))?.toggleAttribute("hidden", !chosen);
  }
}

function onKey(event) {
  const tabs = [...event.currentTarget.querySelectorAll("[role=tab]")];
  const at = tabs.indexOf(event.target);
  const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 };
  if (at < 0 || !(event.key in moves)) return;
  event.preventDefault();
  const tab = tabs[(moves[event.key] + tabs.length) % tabs.length];
  select(tab.dataset.language);
  tab.focus();
}

function build(texts) {
  const name = `samples-${(made += 1)}`;
  const tabs = element("div", { role: "tablist", "aria-label": "Language of the sample" });
  const block = element("div", { class: "samples" }, element("h4", {}, "Sample"), tabs);
  for (const [key, title] of LANGUAGES) {
    const tab = element("button", {
      type: "button", role: "tab", id: `${name}-${key}-tab`, "aria-controls": `${name}-${key}`,
      "data-language": key,
    }, title);
    tab.addEventListener("click", () => select(key));
    tabs.append(tab);
    const status = element("span", { "data-copy-status": "", "aria-live": "polite" }, "Copy");
    const copy = element("button", {
      type: "button", class: "btn btn-sm copy-button", "data-copy": `${name}-${key}-code`,
      "aria-label": `Copy the sample: ${title}`,
    }, status);
    const code = element("code", { id: `${name}-${key}-code` }, texts[key]);
    block.append(element("div", {
      role: "tabpanel", id: `${name}-${key}`, "aria-labelledby": `${name}-${key}-tab`,
    }, element("pre", { tabindex: "0" }, code), copy));
  }
  tabs.addEventListener("keydown", onKey);
  return block;
}

// Swagger UI passes the path and method of the operation to the list of its responses.
const samplesPlugin = (system) => ({
  wrapComponents: {
    responses: (Responses) => (properties) => {
      const { createElement, Fragment } = system.React;
      const texts = samples[`${String(properties.method).toUpperCase()} ${properties.path}`];
      const put = (node) => {
        if (!node || node.firstChild || !texts) return;
        node.append(build(texts));
        show(node);
      };
      return createElement(
        Fragment,
        null,
        createElement("div", { ref: put }),
        createElement(Responses, properties),
      );
    },
  },
});

SwaggerUIBundle({
  ...JSON.parse(document.getElementById("swagger-settings").textContent),
  dom_id: "#swagger-ui",
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [samplesPlugin],
});
