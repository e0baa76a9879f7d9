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

// Swagger UI resolves references in the whole description, seconds for each operation that is
// opened. It gets a description of that operation alone, with the schemas that it refers to.
const COMPONENT = /"\$ref":"#\/components\/schemas\/([^"]+)"/g;

function schemasOf(description, root) {
  const all = description.components?.schemas ?? {};
  const used = {};
  const waiting = [root];
  while (waiting.length) {
    for (const [, name] of JSON.stringify(waiting.pop()).matchAll(COMPONENT)) {
      if (name in used || !(name in all)) continue;
      used[name] = all[name];
      waiting.push(all[name]);
    }
  }
  return used;
}

function partOf(description, [section, path, method]) {
  const { securitySchemes } = description.components ?? {};
  if (section === "components" && path === "securitySchemes") {
    return { ...description, paths: {}, components: { securitySchemes } };
  }
  const operation = section === "paths" && description.paths[path]?.[method];
  if (!operation) return description;
  const schemas = schemasOf(description, operation);
  return {
    ...description,
    paths: { [path]: { [method]: operation } },
    components: { schemas, securitySchemes },
  };
}

const partsPlugin = (system) => {
  const resolve = system.fn.resolveSubtree;
  return {
    fn: {
      resolveSubtree: (description, path, options) =>
        resolve(partOf(description, path), path, options),
    },
  };
};

// The address names the open operation, as `#/Jobs/create_job`, and opens it.
const linksPlugin = () => ({
  statePlugins: {
    layout: {
      wrapActions: {
        show: (original) => (thing, shown) => {
          if (shown && thing.length === 3 && thing[0] === "operations") {
            history.replaceState(history.state, "", `#/${thing.slice(1).map(encodeURIComponent).join("/")}`);
          }
          return original(thing, shown);
        },
      },
    },
  },
});

function operationInAddress() {
  try {
    const [, tag, name] = /^#\/([^/]+)\/([^/]+)$/.exec(location.hash)?.map(decodeURIComponent) ?? [];
    return name && { tag, name };
  } catch {
    return null; // not our address: a percent sign without digits
  }
}

function openFromAddress() {
  const operation = operationInAddress();
  if (!operation) return;
  ui.layoutActions.show(["operations-tag", operation.tag], true);
  ui.layoutActions.show(["operations", operation.tag, operation.name], true);
  const id = `operations-${operation.tag}-${operation.name}`.replaceAll(/\s/g, "_");
  let frames = 0;
  const reveal = () => {
    const block = document.getElementById(id);
    if (!block && (frames += 1) < 120) return requestAnimationFrame(reveal);
    block?.scrollIntoView();
    return block?.querySelector(".opblock-summary-control")?.focus({ preventScroll: true });
  };
  reveal();
}

// Groups are folded, so the browser's own search finds no operation: this field does.
const MOST_HITS = 30;
const search = document.getElementById("operation-search");
const hits = document.getElementById("operation-hits");
const hitsStatus = document.getElementById("operation-hits-status");
let operations = [];

function listOperations({ paths }) {
  operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { tags = ["default"], operationId, summary = "" }]) => ({
      method: method.toUpperCase(), path, tag: tags[0], name: operationId, summary,
      words: `${method} ${path} ${tags[0]} ${operationId.replaceAll("_", " ")} ${operationId} ${summary}`.toLowerCase(),
    })),
  );
}

function findOperations() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = words.length
    ? operations.filter((operation) => words.every((word) => operation.words.includes(word)))
    : [];
  hits.hidden = !matching.length;
  hits.replaceChildren(...matching.slice(0, MOST_HITS).map(({ method, path, tag, name, summary }) =>
    element("li", {}, element("a", { href: `#/${encodeURIComponent(tag)}/${encodeURIComponent(name)}` },
      element("span", { class: "operation-method" }, method), element("code", {}, path),
      element("span", { class: "text-secondary" }, summary)))));
  const left = matching.length - MOST_HITS;
  hitsStatus.textContent = !words.length ? ""
    : !matching.length ? `No operation matches “${search.value.trim()}”.`
      : left > 0 ? `${matching.length} operations, the first ${MOST_HITS} are listed. Add a word to narrow them down.`
        : `${matching.length} operation${matching.length === 1 ? "" : "s"}`;
}

const ui = SwaggerUIBundle({
  ...JSON.parse(document.getElementById("swagger-settings").textContent),
  dom_id: "#swagger-ui",
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [samplesPlugin, partsPlugin, linksPlugin],
  onComplete: () => {
    listOperations(ui.specSelectors.specJson().toJS());
    findOperations();
    openFromAddress();
  },
});
search.addEventListener("input", findOperations);
hits.addEventListener("click", (event) => {
  // The same address again changes nothing in the browser, but the operation may have been folded.
  const link = event.target.closest("a");
  if (link && link.hash === location.hash) openFromAddress();
});
window.addEventListener("hashchange", openFromAddress);
