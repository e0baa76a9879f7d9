// Says in JupyterLab that this server is about to stop, and why; saves what is open, and lets
// whoever sits there keep it. Above the list of files it says who sees them. The logo leads to the
// server's page in the portal, and the portal's theme is taken over when it has changed.
//
// JupyterLab takes an extension from a container with `init` and `get`. This one is written by hand,
// so nothing has to be built: what it needs of JupyterLab's own code it takes from what is shared.
(() => {
  "use strict";

  const NAME = "slipway-desk";
  const KEEP = "slipway:keep-server";
  const LOOK_EVERY_MS = 5000;
  const THEMES = { light: "JupyterLab Light", dark: "JupyterLab Dark" };
  const THEME = "slipway-theme";
  // Before JupyterLab replaces the address of its page.
  const portalTheme = new URLSearchParams(location.search).get(THEME);
  let shared = {};

  async function jupyterServices() {
    const [offered] = Object.values(shared["@jupyterlab/services"]);
    return (await offered.get())();
  }

  async function ask(app, method) {
    const { ServerConnection } = await jupyterServices();
    const settings = app.serviceManager.serverSettings;
    const url = `${settings.baseUrl}slipway/stop`;
    const answer = await ServerConnection.makeRequest(url, { method }, settings);
    if (!answer.ok) throw new Error(`the server responded with ${answer.status}`);
    return answer.json();
  }

  // What is typed is saved all the time; this is for whoever has switched that off.
  async function saveAll(app) {
    const contexts = new Set();
    for (const widget of app.shell.widgets("main")) {
      const { context } = widget;
      if (context?.model?.dirty && !context.model.readOnly) contexts.add(context);
    }
    await Promise.allSettled([...contexts].map((context) => context.save()));
  }

  // JupyterLab shows 140 characters of it.
  function wordsOf(told) {
    const at = new Date(told.stops_at).toLocaleTimeString();
    return `This server stops at ${at}. ${told.why} Open files are saved.`;
  }

  // Says who sees the files of the folder that is shown.
  function describeSharing(app) {
    const browser = [...app.shell.widgets("left")].find(({ id }) => id === "filebrowser");
    const crumbs = browser?.node.querySelector(".jp-FileBrowser-crumbs");
    if (!crumbs) return;
    const note = document.createElement("p");
    note.setAttribute("role", "status");
    note.setAttribute("aria-label", "Who sees these files");
    note.style.cssText =
      "margin: 0; padding: 2px 12px 6px; flex: 0 0 auto; line-height: 1.35;" +
      " font-size: var(--jp-ui-font-size1); color: var(--jp-ui-font-color2);";
    const describe = () => {
      const isPersonal = browser.model.path.split("/")[0] === "personal";
      note.textContent = isPersonal
        ? "Only you see these files."
        : "Shared: all members of the project can read and change these files. Only you can see the folder personal.";
    };
    crumbs.after(note);
    browser.model.pathChanged.connect(describe);
    describe();
  }

  // Puts a link to the server's page in the portal in the place of Jupyter's logo.
  function linkToPortal(app) {
    const config = document.getElementById("jupyter-config-data");
    const page = JSON.parse(config?.textContent ?? "{}").slipwayPage;
    const logo = [...app.shell.widgets("top")].find(({ id }) => id === "jp-MainLogo");
    if (!logo || !/^https?:/.test(page ?? "")) return;
    const link = document.createElement("a");
    link.href = page;
    link.target = "_blank";
    link.rel = "noopener";
    link.textContent = "Slipway";
    link.title = "Open the page of this server in Slipway";
    link.style.cssText =
      "display: flex; align-items: center; height: 100%; padding: 0 8px 0 4px; font-weight: 600;" +
      " text-decoration: none; color: var(--jp-ui-font-color1); font-size: var(--jp-ui-font-size1);";
    logo.node.replaceChildren(link);
    logo.node.style.cssText += "width: auto; min-width: max-content;";
  }

  // A theme that somebody chose in JupyterLab stays until the portal's theme changes.
  async function takeTheme(commands) {
    if (!(portalTheme in THEMES) || localStorage.getItem(THEME) === portalTheme) return;
    await commands.execute("apputils:change-theme", { theme: THEMES[portalTheme] });
    localStorage.setItem(THEME, portalTheme);
  }

  function activate(app) {
    const { commands } = app;
    let warned = "";
    let notice = null;

    async function take(told) {
      const now = told.stops_at ?? "";
      if (now === warned) return;
      warned = now;
      if (notice !== null) await commands.execute("apputils:dismiss-notification", { id: notice });
      notice = null;
      if (!now) return;
      const actions = told.may_keep ? [{ label: "Keep it running", commandId: KEEP }] : [];
      const options = { autoClose: false, actions };
      const said = { message: wordsOf(told), type: "warning", options };
      notice = await commands.execute("apputils:notify", said);
      await saveAll(app);
    }

    async function look() {
      try {
        await take(await ask(app, "GET"));
      } catch {
        // A server that is gone says so by JupyterLab's own means.
      }
      setTimeout(look, LOOK_EVERY_MS);
    }

    commands.addCommand(KEEP, {
      label: "Keep this server running",
      execute: async () => take(await ask(app, "POST")),
    });
    app.restored.then(() => describeSharing(app));
    app.restored.then(() => linkToPortal(app));
    app.restored.then(() => takeTheme(commands)).catch(() => {
      // Storage is forbidden, or the theme is not installed: JupyterLab keeps its own.
    });
    app.restored.then(look);
  }

  const extension = { __esModule: true, default: { id: `${NAME}:stop`, autoStart: true, activate } };
  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB[NAME] = {
    init: (scope) => {
      shared = scope;
    },
    get: async () => () => extension,
  };
})();
