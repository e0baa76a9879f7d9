// Uploads files into a folder of the workspace, one after another, each with its progress.
const form = document.getElementById("workspace-form");
const input = document.getElementById("workspace-files");
const list = document.getElementById("workspace-uploads");
let queue = Promise.resolve();
let unsettled = 0;
let failed = false;

function row(file) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  const bar = document.createElement("progress");
  const state = document.createElement("span");
  name.textContent = file.name;
  bar.max = Math.max(1, file.size);
  bar.value = 0;
  bar.setAttribute("aria-label", `Upload of ${file.name}`);
  state.textContent = "waiting";
  item.append(name, bar, state);
  list.append(item);
  return { item, bar, state };
}

function post(file, replace, onProgress) {
  const { url, area, node, path } = form.dataset;
  const query = new URLSearchParams({ area, node, path: path ? `${path}/${file.name}` : file.name });
  if (replace) query.set("replace", "true");
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open("POST", `${url}?${query}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("X-CSRFToken", form.querySelector("[name=csrfmiddlewaretoken]").value);
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded));
    request.addEventListener("loadend", () => {
      let answer = {};
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        // A proxy's page, or no answer at all.
      }
      done({ status: request.status, answer });
    });
    request.send(file);
  });
}

function refuse(file, shown, words, mayReplace) {
  failed = true;
  shown.state.textContent = "not uploaded";
  const reason = document.createElement("span");
  reason.className = "is-bad";
  reason.textContent = words;
  shown.item.append(reason);
  if (!mayReplace) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn btn-sm";
  button.textContent = `Replace ${file.name}`;
  button.addEventListener("click", () => {
    shown.item.remove();
    failed = false;
    enqueue(file, true);
  });
  shown.item.append(button);
}

async function send(file, replace, shown) {
  const most = Number(form.dataset.most);
  if (file.size > most) {
    refuse(file, shown, `The file is larger than ${Math.floor(most / 1024 ** 3)} GiB. Fetch it in a terminal of JupyterLab.`, false);
    return;
  }
  shown.state.textContent = "uploading";
  const { status, answer } = await post(file, replace, (bytes) => {
    shown.bar.value = bytes;
    shown.state.textContent = bytes < file.size ? `${Math.floor((100 * bytes) / file.size)} %` : "writing to the node";
  });
  if (status >= 200 && status < 300) {
    shown.bar.value = shown.bar.max;
    shown.state.textContent = "uploaded";
    return;
  }
  const words = status ? `${answer.detail ?? "The portal refused the upload."} ${answer.next_step ?? ""}` : "The connection was lost. Choose the file again.";
  refuse(file, shown, words, answer.code === "exists");
}

function enqueue(file, replace = false) {
  const shown = row(file);
  unsettled += 1;
  queue = queue.then(async () => {
    await send(file, replace, shown);
    unsettled -= 1;
    if (!unsettled && !failed) window.location.reload();
  });
}

function take(files) {
  failed = false;
  for (const file of files) enqueue(file);
}

if (form) {
  input.addEventListener("change", () => {
    take([...input.files]);
    input.value = "";
  });
  const card = document.getElementById("workspace-card");
  card.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("is-over");
  });
  card.addEventListener("dragleave", () => form.classList.remove("is-over"));
  card.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("is-over");
    take([...event.dataTransfer.files].filter((file) => file.size || file.type));
  });
  window.addEventListener("beforeunload", (event) => {
    if (unsettled) event.preventDefault();
  });
}
