// The terminal on the page of a shell: xterm.js, connected to a shell in the task of a job.
import { FitAddon } from "../npm/@xterm/addon-fit/lib/addon-fit.mjs";
import { Terminal } from "../npm/@xterm/xterm/lib/xterm.mjs";
import { ShellConnection } from "./shell_connection.js";
import { withoutStyleElements } from "./strict_styles.js";

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const ENDS = {
  closed: "The shell was closed.",
  ended: "The shell has ended.",
  forbidden: "You may not run work in this project any more.",
  lost: "The shell was lost.",
  not_started: "The shell could not be started.",
  refused: "No shell was opened.",
  task_ended: "The task has ended, and the shell with it.",
  unattended: "The shell was closed because nobody followed it.",
};

const READER_KEY = "slipway-terminal-reader";

const box = document.getElementById("shell");
const state = document.getElementById("shell-state");
const again = document.getElementById("shell-again");
const closing = document.getElementById("shell-close");
const reader = document.getElementById("shell-reader");

function theme() {
  const probe = document.createElement("span");
  box.append(probe);
  const colour = (name) => {
    probe.style.color = `var(--slip-${name})`;
    return getComputedStyle(probe).color;
  };
  const foreground = colour("terminal-fg");
  const colours = { background: colour("terminal"), foreground, cursor: foreground };
  colours.selectionBackground = foreground.replace("rgb(", "rgba(").replace(")", ", 0.25)");
  for (const name of COLOURS) {
    colours[name] = colour(`ansi-${name}`);
    colours[`bright${name[0].toUpperCase()}${name.slice(1)}`] = colours[name];
  }
  probe.remove();
  return colours;
}

// Output for screen readers costs time, and keeps soft keyboards from typing.
function reads() {
  try {
    return localStorage.getItem(READER_KEY) === "on";
  } catch {
    return false;
  }
}

const terminal = new Terminal({
  cursorBlink: !window.matchMedia("(prefers-reduced-motion: reduce)").matches,
  fontFamily: getComputedStyle(box).fontFamily,
  fontSize: 13,
  minimumContrastRatio: 4.5,
  screenReaderMode: reads(),
  scrollback: 5000,
  theme: theme(),
});
const fit = new FitAddon();
let connection = null;

function say(words) {
  state.textContent = words;
}

function size() {
  return { rows: terminal.rows, columns: terminal.cols };
}

function open() {
  again.hidden = true;
  closing.hidden = false;
  terminal.reset();
  say("Opening a shell…");
  connection = new ShellConnection(box.dataset.url, box.dataset.token, {
    ready: () => say("Connected."),
    output: (bytes) => terminal.write(bytes),
    lost: () => say("The connection is lost. Connecting again…"),
    found: () => say("Connected."),
    end: ended,
  });
  connection.open(Number(box.dataset.rank), size());
}

function ended({ reason, exit_code: code, detail }) {
  const words = reason === "exit" ? `The shell has ended with status ${code}.` : (ENDS[reason] ?? ENDS.ended);
  say(`${words} ${detail ?? ""}`.trim());
  closing.hidden = true;
  again.hidden = false;
  if (box.contains(document.activeElement)) again.focus();
}

terminal.loadAddon(fit);
withoutStyleElements(() => terminal.open(box));
terminal.textarea.setAttribute("aria-label", "Terminal");
terminal.textarea.setAttribute("aria-describedby", "shell-keys");
fit.fit();
terminal.onData((text) => connection.type(new TextEncoder().encode(text)));
terminal.onBinary((text) => connection.type(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
terminal.onResize(() => connection?.resize(size()));
terminal.attachCustomKeyEventHandler((event) => {
  const isOurs = event.ctrlKey && event.shiftKey;
  if (isOurs && event.code === "ArrowUp") {
    if (event.type === "keydown") (again.hidden ? closing : again).focus();
    return false;
  }
  if (isOurs && event.code === "KeyC") {
    event.preventDefault();
    if (event.type === "keydown") navigator.clipboard?.writeText(terminal.getSelection());
    return false;
  }
  return true;
});
new ResizeObserver(() => requestAnimationFrame(() => fit.fit())).observe(box);
new MutationObserver(() => {
  terminal.options.theme = theme();
}).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
again.addEventListener("click", () => {
  open();
  terminal.focus();
});
reader.checked = reads();
reader.addEventListener("change", () => {
  terminal.options.screenReaderMode = reader.checked;
  try {
    localStorage.setItem(READER_KEY, reader.checked ? "on" : "off");
  } catch {
    // It is chosen for this page alone.
  }
});
closing.addEventListener("click", () => connection.close());
window.addEventListener("pagehide", () => connection.close());
open();
terminal.focus();
