// Uploads files and folders into a folder of the workspace, some at a time, each with its progress.
const LANES = 3;
const MOST_FILES = 5000;
const MOST_DONE_SHOWN = 20;
const MOST_TRIES = 5;
const form = document.getElementById("workspace-form");
const list = document.getElementById("workspace-uploads");
const summary = document.getElementById("workspace-summary");
const pending = [];
let active = 0;
let total = 0;
let uploaded = 0;
let leftOut = 0;
let conflicts = [];

// Names may hold characters that a browser would not show, or that would reverse the text.
const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

function row(path, size) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  const bar = document.createElement("progress");
  const state = document.createElement("span");
  name.textContent = visible(path);
  bar.max = Math.max(1, size);
  bar.value = 0;
  bar.setAttribute("aria-label", `Upload of ${visible(path)}`);
  item.append(name, bar, state);
  list.append(item);
  return { item, bar, state };
}

function button(text, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "btn btn-sm";
  made.textContent = text;
  made.addEventListener("click", action);
  return made;
}

function address(path, more) {
  const { area, node, path: folder } = form.dataset;
  return new URLSearchParams({ area, node, path: folder ? `${folder}/${path}` : path, ...more });
}

function send(method, url, body, type, onProgress) {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    request.setRequestHeader("Content-Type", type);
    request.setRequestHeader("X-CSRFToken", form.querySelector("[name=csrfmiddlewaretoken]").value);
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded));
    request.addEventListener("loadend", () => {
      let answer = {};
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        // A proxy's page, or no answer at all.
      }
      const later = Number(request.getResponseHeader("Retry-After")) || 2;
      done({ status: request.status, answer, later });
    });
    request.send(body);
  });
}

async function post(upload, onProgress) {
  for (let tries = 1; ; tries += 1) {
    const { path, file, replace } = upload;
    const more = { ...(replace && { replace: "true" }), ...(path.includes("/") && { parents: "true" }) };
    const result = file
      ? await send("POST", `${form.dataset.url}?${address(path, more)}`, file, "application/octet-stream", onProgress)
      : await send("PUT", form.dataset.foldersUrl, JSON.stringify({ ...Object.fromEntries(address(path)), parents: true }), "application/json", onProgress);
    if (result.status !== 429 || tries === MOST_TRIES) return result;
    await wait(1000 * result.later);
  }
}

function refuse(upload, shown, words, mayReplace) {
  leftOut += 1;
  shown.state.textContent = "not uploaded";
  shown.bar.remove();
  const reason = document.createElement("span");
  reason.className = "is-bad";
  reason.textContent = words;
  shown.item.append(reason);
  if (!mayReplace) return;
  const conflict = () => {
    shown.item.remove();
    leftOut -= 1;
    conflicts = conflicts.filter((other) => other !== conflict);
    enqueue({ ...upload, replace: true }, 0);
  };
  conflicts.push(conflict);
  shown.item.append(button(`Replace ${visible(upload.path)}`, conflict));
}

async function start(upload) {
  const { path, file } = upload;
  const shown = row(path, file?.size ?? 0);
  const most = Number(form.dataset.most);
  if (file?.size > most) {
    refuse(upload, shown, `The file is larger than ${Math.floor(most / 1024 ** 3)} GiB. Fetch it in a terminal of JupyterLab.`, false);
    return;
  }
  shown.state.textContent = "uploading";
  const { status, answer } = await post(upload, (bytes) => {
    if (!file) return;
    shown.bar.value = bytes;
    shown.state.textContent = bytes < file.size ? `${Math.floor((100 * bytes) / file.size)} %` : "writing to the node";
  });
  if (status >= 200 && status < 300) {
    uploaded += 1;
    shown.bar.value = shown.bar.max;
    shown.state.textContent = file ? "uploaded" : "created";
    shown.item.dataset.done = "";
    const done = list.querySelectorAll("[data-done]");
    if (done.length > MOST_DONE_SHOWN) done[0].remove();
    return;
  }
  const fault = answer.errors?.find((it) => it.field === "path");
  let words = `${answer.detail ?? "The portal refused the upload."} ${answer.next_step ?? ""}`;
  if (fault) words = `The path ${fault.message}. Rename it and upload it again.`;
  if (answer.code === "exists" && file) words = answer.detail;
  if (!status) words = "The connection was lost. Choose the file again.";
  refuse(upload, shown, words, answer.code === "exists" && file);
}

function settle() {
  const isOver = !active && !pending.length;
  if (isOver && !leftOut) {
    window.location.reload();
    return;
  }
  const out = leftOut ? `, ${leftOut} left out` : "";
  summary.textContent = `${uploaded} of ${total} uploaded${out}.`;
  if (!isOver) return;
  if (conflicts.length > 1) summary.append(" ", button(`Replace all ${conflicts.length} that exist`, () => [...conflicts].forEach((replace) => replace())));
  if (uploaded) summary.append(" ", button("Show the folder", () => window.location.reload()));
}

function pump() {
  while (active < LANES && pending.length) {
    active += 1;
    start(pending.shift()).finally(() => {
      active -= 1;
      pump();
      settle();
    });
  }
}

function enqueue(upload, count = 1) {
  total += count;
  pending.push(upload);
  pump();
}

// Returns the hidden part of a path, or nothing.
function hiddenPart(path) {
  const parts = path.split("/");
  const first = parts.findIndex((part) => part.startsWith("."));
  return first < 0 ? "" : parts.slice(0, first + 1).join("/");
}

function take(uploads) {
  if (!active && !pending.length) {
    list.replaceChildren();
    total = uploaded = leftOut = 0;
    conflicts = [];
  }
  if (uploads.length > MOST_FILES) {
    summary.textContent = `The folder has more than ${MOST_FILES} files. Upload it with slipway workspace upload.`;
    return;
  }
  const hidden = new Set();
  for (const upload of uploads) {
    // A file that is chosen by itself is meant, also if its name begins with a dot.
    const part = upload.path.includes("/") && !form.dataset.hidden ? hiddenPart(upload.path) : "";
    if (!part) enqueue(upload);
    else if (!hidden.has(part)) {
      hidden.add(part);
      total += 1;
      refuse(upload, row(part, 0), "Hidden: its name begins with a dot. Show hidden files to upload it.", false);
    }
  }
  if (hidden.size) settle();
}

// Yields the files of a dropped folder, and its empty folders.
async function walk(entry, prefix, uploads) {
  const path = prefix + entry.name;
  if (entry.isFile) {
    uploads.push({ path, file: await new Promise((done, fail) => entry.file(done, fail)) });
    return;
  }
  const reader = entry.createReader();
  let count = 0;
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) break;
    count += some.length;
    for (const below of some) {
      if (uploads.length > MOST_FILES) return;
      await walk(below, `${path}/`, uploads);
    }
  }
  if (!count) uploads.push({ path });
}

async function drop(event) {
  // The list of items is empty after the event.
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
  const uploads = [];
  try {
    for (const entry of entries) await walk(entry, "", uploads);
  } catch (error) {
    summary.textContent = `The browser cannot read what was dropped: ${error.message}`;
    return;
  }
  take(uploads);
}

if (form) {
  for (const input of document.querySelectorAll("#workspace-files, #workspace-folder")) {
    input.addEventListener("change", () => {
      take([...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
      input.value = "";
    });
  }
  const card = document.getElementById("workspace-card");
  card.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("is-over");
  });
  card.addEventListener("dragleave", () => form.classList.remove("is-over"));
  card.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("is-over");
    drop(event);
  });
  window.addEventListener("beforeunload", (event) => {
    if (active || pending.length) event.preventDefault();
  });
}
