// The live log of a job. Keeps the newest lines alone, so that a page may stay open for days; what
// was dropped, or lies before the beginning, is fetched again when one scrolls up to it.
import { draw, Terminal } from "./ansi.js";

const MOST_LINES = 4000;
const NEAR_END_PX = 40;
const BACK_BYTES = 65536;

const box = document.getElementById("log");
const list = document.getElementById("log-lines");
const state = document.getElementById("log-state");
const toEnd = document.getElementById("log-end");
const form = document.getElementById("log-choice");

class Log {
  constructor() {
    this.attempt = Number(box.dataset.attempt);
    this.rank = Number(box.dataset.rank);
    this.source = null;
    this.following = true;
    this.complete = false;
    this.waiting = [];
    this.drawing = 0;
  }

  query(more = {}) {
    return new URLSearchParams({ attempt: this.attempt, rank: this.rank, ...more });
  }

  // Begins anew: at the end, or at a byte of the log.
  open(start) {
    this.close();
    this.waiting = [];
    this.terminal = new Terminal();
    this.begin = start ?? null;
    this.end = start ?? null;
    this.skipsFirst = start === undefined;
    this.complete = false;
    list.replaceChildren();
    this.last = null;
    this.listen();
  }

  listen() {
    const at = this.end === null ? {} : { start: this.end };
    this.source = new EventSource(`${box.dataset.follow}?${this.query(at)}`);
    this.source.addEventListener("log", (event) => this.hear(JSON.parse(event.data)));
    this.source.addEventListener("gap", (event) => this.miss(JSON.parse(event.data)));
    this.source.addEventListener("attempt", (event) => this.again(JSON.parse(event.data)));
    this.source.addEventListener("complete", () => this.finish());
    this.source.addEventListener("cut", () => window.location.reload());
    this.source.addEventListener("open", () => this.say());
    this.source.addEventListener("error", () => this.complete || this.say("Reconnecting…"));
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  hear(piece) {
    if (this.end !== null && piece.start < this.end) return; // heard before the line was cut
    let { text } = piece;
    if (this.begin === null) {
      this.begin = piece.start;
      // The end of a long log begins in the middle of a line.
      if (piece.start > 0 && this.skipsFirst) {
        const first = text.indexOf("\n") + 1;
        this.begin += new TextEncoder().encode(text.slice(0, first)).length;
        text = text.slice(first);
      }
    }
    this.end = piece.end;
    this.waiting.push(text);
    this.drawing ||= requestAnimationFrame(() => this.show());
    // A hidden page draws no frames; what waits must not grow meanwhile.
    if (this.waiting.length > 50) this.show();
  }

  show() {
    cancelAnimationFrame(this.drawing);
    this.drawing = 0;
    const ended = this.terminal.read(this.waiting.join(""));
    this.waiting = [];
    const fresh = document.createDocumentFragment();
    const skip = Math.max(0, ended.length - MOST_LINES);
    ended.forEach((pieces, at) => {
      if (at < skip) return;
      const line = this.last ?? this.line();
      this.last = null;
      draw(line, pieces);
      if (!line.isConnected) fresh.append(line);
    });
    if (this.terminal.line.length) {
      this.last ??= this.line();
      draw(this.last, this.terminal.line);
      if (!this.last.isConnected) fresh.append(this.last);
    }
    list.append(fresh);
    this.forget();
    if (this.following) box.scrollTop = box.scrollHeight;
    this.say();
  }

  line() {
    const line = document.createElement("div");
    line.className = "log-line";
    return line;
  }

  // Drops the oldest lines; scrolling back fetches from the log itself, so nothing is lost.
  forget() {
    const over = list.childElementCount - MOST_LINES;
    if (over <= 0) return;
    for (let i = 0; i < over; i += 1) list.firstElementChild.remove();
    this.begin = undefined; // where the first line begins is no longer known
  }

  miss({ start, end }) {
    const line = this.line();
    line.classList.add("log-gap");
    line.textContent = `… ${(end - start).toLocaleString("en-US")} bytes not shown; download the log to read them …`;
    list.append(line);
    this.last = null;
    this.terminal = new Terminal();
    this.end = end;
  }

  again({ attempt }) {
    this.attempt = attempt;
    this.end = 0;
    const line = this.line();
    line.classList.add("log-gap");
    line.textContent = `Attempt ${attempt}`;
    list.append(line);
    this.last = null;
    this.terminal = new Terminal();
    this.begin = undefined;
    this.links();
  }

  finish() {
    this.complete = true;
    this.close();
    this.say();
  }

  say(words) {
    const empty = list.childElementCount === 0;
    const live = this.complete ? "Log complete." : "Live.";
    state.textContent = words ?? (empty ? (this.complete ? "No output." : "No output yet.") : live);
    box.classList.toggle("is-live", !this.complete && this.source !== null);
    toEnd.hidden = this.following;
  }

  // Fetches what lies before the first line shown.
  async back() {
    if (this.begin === undefined) {
      this.say("Older lines are not on this page: search jumps to them, and the download has all lines.");
    }
    if (!this.begin || this.fetching) return;
    this.fetching = true;
    const start = Math.max(0, this.begin - BACK_BYTES);
    try {
      const answer = await fetch(`${box.dataset.range}?${this.query({ start, bytes: this.begin - start })}`);
      if (answer.ok) this.prepend(await answer.json(), start);
    } finally {
      this.fetching = false;
    }
  }

  prepend(piece, start) {
    let { text } = piece;
    let begin = start;
    if (start > 0) {
      const first = text.indexOf("\n") + 1;
      begin += new TextEncoder().encode(text.slice(0, first)).length;
      text = text.slice(first);
    }
    const before = box.scrollHeight;
    const fresh = document.createDocumentFragment();
    for (const pieces of new Terminal().read(text)) {
      const line = this.line();
      draw(line, pieces);
      fresh.append(line);
    }
    list.prepend(fresh);
    this.begin = begin;
    box.scrollTop += box.scrollHeight - before;
  }

  follow(on) {
    this.following = on;
    if (on) box.scrollTop = box.scrollHeight;
    this.say();
  }

  links() {
    document.getElementById("log-download").href = `${box.dataset.download}?${this.query()}`;
    for (const field of document.querySelectorAll("#log-find [name=attempt], #log-find [name=rank]")) {
      field.value = field.name === "attempt" ? this.attempt : this.rank;
    }
    box.setAttribute("aria-label", `Log of rank ${this.rank}`);
  }
}

if (box) {
  const log = new Log();
  log.open();

  box.addEventListener("scroll", () => {
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;
    if (atEnd !== log.following) log.follow(atEnd);
    if (box.scrollTop < NEAR_END_PX && !log.following) log.back();
  });
  toEnd.addEventListener("click", () => {
    if (log.end === null || log.jumped) log.open();
    log.jumped = false;
    log.follow(true);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    const chosen = new FormData(form);
    log.attempt = Number(chosen.get("attempt") ?? log.attempt);
    log.rank = Number(chosen.get("rank") ?? log.rank);
    log.links();
    log.open();
    log.follow(true);
  });
  document.addEventListener("click", (event) => {
    const match = event.target.closest?.("[data-log-at]");
    if (match) {
      event.preventDefault();
      log.jumped = true;
      log.following = false;
      log.open(Number(match.dataset.logAt));
      box.scrollTop = 0;
      box.focus({ preventScroll: true });
    }
    if (event.target.closest?.("[data-close-found]")) document.getElementById("log-found").replaceChildren();
  });
  // A hidden page needs no connection: browsers allow but a few to each portal.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) log.close();
    else if (!log.complete && !log.source) log.listen();
  });
}
