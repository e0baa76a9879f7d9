// Sends code to the portal as soon as it is chosen, so that a form that is refused loses nothing.
// A folder is packed into a tar here; what never belongs into a job is left out.
import { onChosen } from "./chosen.js";

const form = document.getElementById("job-form");
const state = document.getElementById("code-state");
const choice = document.getElementById("id_snapshot");
const script = document.getElementById("id_script");
const suggestions = document.getElementById("scripts");
const LEFT_OUT = new Set([".git", "__pycache__", ".venv", "venv", "node_modules", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".DS_Store"]);
const BLOCK = 512;
const MOST_BYTES = 500 * 1024 ** 2;
const LONGEST_NAME = 100;
const encoder = new TextEncoder();

function field(header, at, length, text) {
  header.set(encoder.encode(text).subarray(0, length), at);
}

function octal(number, digits) {
  return number.toString(8).padStart(digits, "0");
}

function header(name, size, kind) {
  const block = new Uint8Array(BLOCK);
  field(block, 0, LONGEST_NAME, name);
  field(block, 100, 8, "0000644");
  field(block, 108, 8, octal(0, 7));
  field(block, 116, 8, octal(0, 7));
  field(block, 124, 12, octal(size, 11));
  field(block, 136, 12, octal(0, 11));
  field(block, 148, 8, "        ");
  field(block, 156, 1, kind);
  field(block, 257, 8, "ustar\x0000");
  field(block, 148, 8, `${octal(block.reduce((sum, byte) => sum + byte, 0), 6)}\x00 `);
  return block;
}

function padding(size) {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}

// A longer path stands in an extension header before the file.
function longName(name) {
  const line = ` path=${name}\n`;
  const plain = encoder.encode(line).length;
  let length = plain + String(plain).length;
  if (String(length).length !== String(plain).length) length = plain + String(length).length;
  const record = encoder.encode(`${length}${line}`);
  return [header("pax", record.length, "x"), record, padding(record.length)];
}

function packed(files) {
  const parts = [];
  const inside = files
    .map((file) => [file.webkitRelativePath.split("/").slice(1).join("/"), file])
    .filter(([path]) => path && !path.split("/").some((part) => LEFT_OUT.has(part)))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  for (const [path, file] of inside) {
    if (encoder.encode(path).length > LONGEST_NAME) parts.push(...longName(path));
    parts.push(header(path, file.size, "0"), file, padding(file.size));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts);
}

function say(words, bad = false) {
  state.textContent = words;
  state.classList.toggle("is-bad", bad);
}

function choose(found, label) {
  const known = [...choice.options].find((option) => option.value === found.digest);
  const option = known ?? new Option("", found.digest);
  option.textContent = `${label} · ${found.files} file${found.files === 1 ? "" : "s"} · ${found.digest.slice(0, 8)}`;
  if (!known) choice.add(option, 1);
  choice.value = found.digest;
  choice.classList.remove("is-invalid");
  document.getElementById("id_snapshot_error")?.remove();
  suggestions.replaceChildren(...found.scripts.map((name) => new Option("", name)));
  if (!found.scripts.includes(script.value)) {
    script.value = found.scripts.find((name) => /(^|\/)(train|main)(\.ipynb)?\.py$/.test(name)) ?? found.scripts[0] ?? "";
  }
  choice.dispatchEvent(new Event("change", { bubbles: true }));
}

async function send(blob, name, label) {
  if (blob.size > MOST_BYTES) {
    say(`${label} is larger than ${MOST_BYTES / 1024 ** 2} MiB. Leave data and models out of it.`, true);
    return;
  }
  say(`Uploading ${label}…`);
  try {
    const answer = await fetch(`${form.dataset.code}?${new URLSearchParams({ name })}`, {
      method: "POST",
      body: blob,
      headers: {
        "Content-Type": "application/octet-stream",
        "X-CSRFToken": form.querySelector("[name=csrfmiddlewaretoken]").value,
      },
    });
    const found = await answer.json();
    if (!answer.ok) {
      say(found.fault ?? "The portal rejected the upload. Try again.", true);
      return;
    }
    choose(found, label);
    say(`${label} uploaded.`);
  } catch {
    say("The portal is not responding. Check the connection and choose the file again.", true);
  }
}

if (form) {
  onChosen("id_code", ([file]) => send(file, file.name, file.name));
  onChosen("id_folder", (files) => {
    const folder = files[0].webkitRelativePath.split("/")[0];
    return send(packed(files), `${folder}.tar`, `${folder}/`);
  });
}
