// Galleries of images by step. One slider may move several galleries: that of a comparison.

// An image that the portal does not serve is replaced by the reason and a download.
async function refused(image) {
  const note = document.createElement("p");
  note.className = "gallery-refused";
  let reason = "This image cannot be shown.";
  try {
    const answer = await fetch(image.src);
    if (answer.status === 415) reason = await answer.text();
  } catch {
    // The portal does not answer; the page says so elsewhere.
  }
  note.textContent = `${reason} `;
  if (image.dataset.download) {
    const link = document.createElement("a");
    link.href = image.dataset.download;
    link.textContent = "Download";
    note.append(link);
  }
  (image.closest("a") ?? image).replaceWith(note);
}

function watch(image) {
  if (image.complete && image.naturalWidth === 0 && image.loading !== "lazy") refused(image);
  else image.addEventListener("error", () => refused(image), { once: true });
}

function imageOf(entry, name) {
  const link = document.createElement("a");
  [link.href, link.target, link.rel] = [entry.full, "_blank", "noopener"];
  const image = document.createElement("img");
  image.alt = name;
  image.dataset.download = entry.download;
  // Without an address it would count as complete, and as failed.
  image.addEventListener("error", () => refused(image), { once: true });
  image.src = entry.src;
  link.append(image);
  return link;
}

const stepsOf = (gallery) => JSON.parse(gallery.querySelector("[data-steps] script").textContent);

// The last step that is not after `step`, or the first one.
function show(gallery, step) {
  const steps = stepsOf(gallery);
  const entry = steps.findLast((it) => it.step <= step) ?? steps[0];
  const key = gallery.querySelector(".gallery-key").textContent;
  gallery.querySelector("[data-step]").textContent = `step ${entry.step}`;
  const name = `${key}, step ${entry.step}`;
  gallery.querySelector("[data-images]").replaceChildren(...entry.images.map((image) => imageOf(image, name)));
}

export function startGalleries(root) {
  for (const image of root.querySelectorAll("img[data-media]")) watch(image);
  for (const gallery of root.querySelectorAll("[data-gallery]")) {
    const slider = gallery.querySelector("[data-slider]");
    slider?.addEventListener("input", () => show(gallery, stepsOf(gallery)[Number(slider.value)].step));
  }
  for (const group of root.querySelectorAll("[data-galleries]")) {
    const slider = group.querySelector("[data-common-slider]");
    if (!slider) continue;
    const galleries = [...group.querySelectorAll("[data-gallery]")];
    const steps = [...new Set(galleries.flatMap((gallery) => stepsOf(gallery).map((it) => it.step)))].sort((a, b) => a - b);
    slider.max = String(steps.length - 1);
    slider.value = slider.max;
    slider.addEventListener("input", () => {
      const step = steps[Number(slider.value)];
      group.querySelector("[data-common-step]").textContent = `step ${step}`;
      galleries.forEach((gallery) => show(gallery, step));
    });
  }
}
