// A shell in a task, over the API: its output comes as events, and what is typed goes there in order.
// Both survive lost connections: offsets say what has come already, and what was typed before.

// The portal says something every 10 s.
const SILENCE_MS = 30_000;
// A shell that nobody follows for a minute ends.
const PATIENCE_MS = 55_000;
const AGAIN_MS = 1_000;
const MOST_BYTES = 32_768;
// Keys that are pressed meanwhile travel together.
const TOGETHER_MS = 40;

export class ShellConnection {
  // `hears` has functions: ready, output(bytes), lost, found, end({reason, exit_code, detail}).
  constructor(url, token, hears) {
    this.url = url;
    this.token = token;
    this.hears = hears;
    this.offset = 0;
    this.typed = 0;
    this.waiting = [];
    this.ended = false;
    this.isReady = false;
  }

  // Opens a shell beside a rank, and follows it to its end.
  async open(rank, size) {
    this.size = size;
    const answer = await this.send("POST", "", { rank }).catch(() => null);
    if (!answer?.ok) return this.finish(await refusal(answer));
    this.url += `/${(await answer.json()).id}`;
    window.addEventListener("online", () => this.again?.());
    window.addEventListener("offline", () => this.stop?.abort());
    return this.follow();
  }

  async follow() {
    let lostAt = 0;
    while (!this.ended) {
      try {
        await this.listen(() => {
          if (lostAt) this.hears.found();
          lostAt = 0;
        });
      } catch {
        // Lost: it is made again below.
      }
      if (this.ended) return;
      lostAt ||= Date.now();
      if (Date.now() - lostAt > PATIENCE_MS) {
        this.finish({ reason: "lost", detail: "The portal did not answer for a minute." });
        return;
      }
      this.hears.lost();
      await new Promise((resolve) => {
        this.again = resolve;
        setTimeout(resolve, AGAIN_MS);
      });
    }
  }

  // Reads the output until the connection ends. Calls `heard` whenever something comes.
  async listen(heard) {
    const query = new URLSearchParams({ ...this.size, offset: this.offset });
    const stop = new AbortController();
    this.stop = stop;
    let silence = setTimeout(() => stop.abort(), SILENCE_MS);
    try {
      const answer = await fetch(`${this.url}/output?${query}`, {
        headers: { Accept: "text/event-stream" },
        signal: stop.signal,
      });
      if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) {
        this.finish(await refusal(answer));
        return;
      }
      if (!answer.ok) return;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE_MS);
        heard();
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) this.process(block);
        if (this.ended) return;
      }
    } finally {
      clearTimeout(silence);
      stop.abort();
    }
  }

  process(block) {
    const fields = Object.fromEntries(
      block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]),
    );
    if (!fields.event) return;
    const data = JSON.parse(fields.data);
    if (fields.event === "end") this.finish(data);
    else if (fields.event === "output") this.hear(data);
    else if (fields.event === "ready" && !this.isReady) {
      this.isReady = true;
      this.hears.ready();
      this.type();
    }
  }

  hear({ offset, output }) {
    const bytes = Uint8Array.from(atob(output), (letter) => letter.charCodeAt(0));
    const fresh = bytes.subarray(Math.max(0, this.offset - offset));
    this.offset = Math.max(this.offset, offset + bytes.length);
    if (fresh.length) this.hears.output(fresh);
  }

  // Types bytes. Those that are typed before the shell is ready wait for it.
  async type(bytes) {
    if (bytes?.length) this.waiting.push(...bytes);
    if (this.isTyping || !this.isReady) return;
    this.isTyping = true;
    while (this.waiting.length && !this.ended) {
      const piece = this.waiting.slice(0, MOST_BYTES);
      const data = btoa(String.fromCharCode(...piece));
      const answer = await this.send("PUT", "/input", { offset: this.typed, data }).catch(() => null);
      if (answer?.ok) {
        this.waiting.splice(0, piece.length);
        this.typed += piece.length;
      } else if (answer && answer.status < 500 && answer.status !== 429) {
        const { code } = await answer.json().catch(() => ({}));
        // Anything else is said by the output.
        if (code !== "shell_not_ready") this.waiting = [];
      }
      await pause(answer?.ok ? TOGETHER_MS : AGAIN_MS);
    }
    this.isTyping = false;
  }

  // Sets the size of the window, once it rests.
  resize(size) {
    this.size = size;
    clearTimeout(this.resizing);
    if (!this.isReady || this.ended) return;
    this.resizing = setTimeout(() => {
      this.send("PUT", "/size", { rows: size.rows, columns: size.columns }).catch(() => {});
    }, 150);
  }

  // Ends the shell. The request outlives the page.
  close() {
    if (this.ended || !this.isOpen) return;
    this.send("DELETE", "", undefined, { keepalive: true }).catch(() => {});
  }

  get isOpen() {
    return this.size !== undefined && !this.url.endsWith("/shells");
  }

  finish(end) {
    if (this.ended) return;
    this.ended = true;
    this.hears.end(end);
  }

  send(method, path, body, options = {}) {
    return fetch(this.url + path, {
      method,
      headers: { "Content-Type": "application/json", "X-CSRFToken": this.token },
      body: body && JSON.stringify(body),
      ...options,
    });
  }
}

async function refusal(answer) {
  const problem = await answer?.json().catch(() => null);
  const detail = problem?.detail ?? "The portal did not answer.";
  return { reason: problem?.code === "shell_ended" ? "ended" : "refused", detail };
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
