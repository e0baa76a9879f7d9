// Turns the text of a terminal into lines of coloured pieces: what log.js draws.
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// A complete sequence of escape characters, or the beginning of one at the end of the text.
const ESCAPE = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
const UNFINISHED = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,500}|)$/;
const UNSEEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
const CUBE = [0, 95, 135, 175, 215, 255];

function of256(n) {
  if (n < 16) return COLOURS[n % 8] + (n < 8 ? "" : "-bright");
  if (n >= 232) return `rgb(${Array(3).fill(8 + (n - 232) * 10)})`;
  const i = n - 16;
  return `rgb(${[CUBE[Math.floor(i / 36)], CUBE[Math.floor(i / 6) % 6], CUBE[i % 6]]})`;
}

function wide(codes) {
  const kind = codes.shift();
  if (kind === 5) return of256(codes.shift() ?? 0);
  if (kind === 2) return `rgb(${codes.splice(0, 3)})`;
  return null;
}

function restyled(style, text) {
  const codes = text.split(/[;:]/).map(Number);
  let next = { ...style };
  while (codes.length) {
    const code = codes.shift();
    if (code === 0) next = {};
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code >= 30 && code <= 37) next.fg = COLOURS[code - 30];
    else if (code === 38) next.fg = wide(codes);
    else if (code === 39) next.fg = null;
    else if (code >= 40 && code <= 47) next.bg = COLOURS[code - 40];
    else if (code === 48) next.bg = wide(codes);
    else if (code === 49) next.bg = null;
    else if (code >= 90 && code <= 97) next.fg = `${COLOURS[code - 90]}-bright`;
    else if (code >= 100 && code <= 107) next.bg = `${COLOURS[code - 100]}-bright`;
  }
  return next;
}

// Reads text as it comes. `line` is the one being written; a carriage return begins it anew, as
// progress bars do.
export class Terminal {
  constructor() {
    this.style = {};
    this.line = [];
    this.rest = "";
    this.returned = false;
  }

  // Returns the lines that ended in `text`; each is a list of [words, style].
  read(text) {
    let input = this.rest + text;
    const cut = input.search(UNFINISHED);
    this.rest = cut >= 0 && input.length - cut < 600 ? input.slice(cut) : "";
    if (this.rest) input = input.slice(0, cut);
    const ended = [];
    let at = 0;
    for (const found of input.matchAll(ESCAPE)) {
      this.#write(input.slice(at, found.index), ended);
      at = found.index + found[0].length;
      if (found[2] === "m") this.style = restyled(this.style, found[1]);
      else if (found[2] === "K" && this.returned) this.#begin();
    }
    this.#write(input.slice(at), ended);
    return ended;
  }

  #begin() {
    this.line = [];
    this.returned = false;
  }

  #write(text, ended) {
    for (const part of text.split(/(\r\n|\n|\r)/)) {
      if (part === "\n" || part === "\r\n") {
        ended.push(this.line);
        this.#begin();
      } else if (part === "\r") {
        this.returned = true;
      } else if (part) {
        if (this.returned) this.#begin();
        this.line.push([part.replace(UNSEEN, ""), this.style]);
      }
    }
  }
}

// Draws the pieces of a line into an element. Colours a style sheet cannot know are set one by one.
export function draw(element, pieces) {
  element.replaceChildren(
    ...pieces.map(([words, style]) => {
      if (Object.values(style).every((value) => !value)) return document.createTextNode(words);
      const span = document.createElement("span");
      const [fg, bg] = style.inverse ? [style.bg ?? "back", style.fg ?? "front"] : [style.fg, style.bg];
      for (const name of ["bold", "dim", "italic", "underline"]) {
        if (style[name]) span.classList.add(`ansi-${name}`);
      }
      if (fg?.startsWith("rgb")) span.style.color = fg;
      else if (fg) span.classList.add(`ansi-fg-${fg}`);
      if (bg?.startsWith("rgb")) span.style.backgroundColor = bg;
      else if (bg) span.classList.add(`ansi-bg-${bg}`);
      span.textContent = words;
      return span;
    }),
  );
}
