// Sends files of a dataset in pieces; what has arrived stays, so a cut-off upload goes on there.
import { onChosen } from "./chosen.js";

const PIECE = 16 * 1024 ** 2;
const TRIES = 6;
const form = document.getElementById("data-form");
const state = document.getElementById("data-state");
const commit = document.querySelector("#data-commit button");
const waiting = document.querySelector("[data-reload]");
let sending = 0;

if (waiting) setTimeout(() => window.location.reload(), Number(waiting.dataset.reload));

function say(words, bad = false) {
  state.textContent = words;
  state.classList.toggle("is-bad", bad);
}

function pause(ms) {
  return new Promise((done) => {
    setTimeout(done, ms);
  });
}

function percent(done, all) {
  return all ? Math.floor((100 * done) / all) : 100;
}

// Where a file that began to arrive earlier goes on; the server says when this is wrong.
function begun(path, size) {
  const row = [...document.querySelectorAll("[data-unfinished]")].find((one) => one.dataset.unfinished === path && Number(one.dataset.size) === size);
  return row ? PIECE : 0;
}

async function piece(path, file, offset) {
  const query = new URLSearchParams({ path, offset, size_bytes: file.size });
  const answer = await fetch(`${form.dataset.append}?${query}`, {
    method: "POST",
    body: file.slice(offset, offset + PIECE),
    headers: {
      "Content-Type": "application/octet-stream",
      "X-CSRFToken": form.querySelector("[name=csrfmiddlewaretoken]").value,
    },
  });
  const said = await answer.json();
  if (answer.ok) return said.received_bytes;
  if (said.code === "wrong_offset") return Number(/Continue at (\d+)/.exec(said.next_step ?? "")?.[1] ?? 0);
  if (answer.status >= 500 || answer.status === 429) throw new TypeError("again");
  throw new Error(`${said.detail ?? "The portal rejected the upload."} ${said.next_step ?? ""}`);
}

async function send(path, file) {
  let offset = begun(path, file.size);
  let tries = 0;
  do {
    say(`Uploading ${path}: ${percent(offset, file.size)} %`);
    try {
      offset = await piece(path, file, offset);
      tries = 0;
    } catch (error) {
      tries += 1;
      if (!(error instanceof TypeError) || tries >= TRIES) throw error;
      say(`Connection lost; resuming ${path} in a moment.`);
      await pause(500 * 2 ** tries);
    }
  } while (offset < file.size);
}

async function sendAll(files, pathOf) {
  sending += 1;
  if (commit) commit.disabled = true;
  try {
    for (const file of files) await send(pathOf(file), file);
    window.location.reload(); // the inputs are empty by then: nothing is sent twice
  } catch (error) {
    say(error instanceof TypeError ? "The portal is not responding. Choose the files again to resume." : error.message, true);
  } finally {
    sending -= 1;
  }
}

if (form) {
  onChosen("id_files", (files) => sendAll(files, (file) => file.name));
  onChosen("id_folder", (files) => sendAll(files, (file) => file.webkitRelativePath.split("/").slice(1).join("/")));
  window.addEventListener("beforeunload", (event) => {
    if (sending) event.preventDefault();
  });
}
