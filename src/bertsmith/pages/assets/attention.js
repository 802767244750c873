// The attention page: text, lines, matrix and all heads, for one pane or several side by side.
// Everything shown comes from the data blocks of this file; text enters only as textContent.
"use strict";
(() => {
const page = JSON.parse(document.getElementById("page").textContent);
const ROW = 20; // pixels of a token in the view of lines
const MOST = 3000; // lines drawn at once: more is a blot, and slow
const WEIGHT = Float32Array.from({ length: 256 }, (_, q) => (q / 255) ** 2); // as it was stored
const ABOUT = { // the views, for those who cannot see them
  text: "The text. Arrow keys move from token to token.",
  lines: "Tokens on the left attend to tokens on the right. Arrow keys move from token to token.",
  matrix: "All weights.",
  heads: "All heads, a row for each layer. Arrow keys move from head to head, Enter opens one.",
};
const state = {
  view: page.view, direction: "out", between: "all", special: true, causal: false, worth: true,
  floor: 0.05,
};

// ---------------------------------------------------------------- small helpers

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function percent(share) {
  return (100 * share).toFixed(share > 0.0995 ? 0 : 1) + " %";
}

function chips(fieldset, kind, name, entries, chosen, change) {
  for (const [value, label, about] of entries) {
    const input = make("input", { type: kind, name, value: String(value), checked: chosen(value) });
    input.addEventListener("change", () => change(value, input.checked, input));
    fieldset.append(make("label", { title: about || "" }, input, make("span", {}, label)));
  }
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

async function inflate(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Size a canvas for the screen's pixels, and hand back something to draw on in CSS pixels.
function surface(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const drawing = canvas.getContext("2d");
  drawing.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawing.clearRect(0, 0, width, height);
  return drawing;
}

// ---------------------------------------------------------------- one pane

class Pane {
  constructor(data, number) {
    Object.assign(this, data);
    this.number = number;
    this.count = data.tokens.length;
    this.layer = Math.min(data.start, data.layers.length - 1);
    this.chosen = new Set([data.start_head]); // the sharpest head; "all" shows the mean
    this.source = "heads";
    this.cache = new Map();
    this.kept = null; // the token that was clicked
    this.token = null; // the token shown: the one under the pointer, else the one kept
    this.zoom = { scale: 1, x: 0, y: 0, row: 0, column: 0 };
    this.build();
  }

  // ------------------------------------------------ data

  async cells(layer, source = this.source) {
    const id = source === "heads" ? `maps-${this.number}-${layer}`
      : `${source}-${this.number}-${layer}`;
    if (!this.cache.has(id)) this.cache.set(id, await inflate(id));
    return this.cache.get(id);
  }

  // Does the reader want to see token i looking at token j?
  shown(i, j) {
    const a = this.tokens[i].source, b = this.tokens[j].source;
    if (!state.special && (a === null || b === null)) return false;
    if (state.between === "all") return true;
    return "AB"[a] === state.between[0] && "AB"[b] === state.between[1];
  }

  // The chosen heads' weights as (n, n) floats; one matrix each, then their mean.
  async refresh() {
    const n = this.count, turn = (this.turn = (this.turn || 0) + 1);
    let source = this.source;
    if (source === "rollout" && state.causal) source = "causal";
    const cells = await this.cells(this.layer, source);
    if (turn !== this.turn) return; // something else was chosen meanwhile
    // A layer that was pruned has only the first of the heads.
    const has = this.counts[this.layer];
    for (const input of this.headChips.querySelectorAll("input")) input.disabled = input.value >= has;
    const heads = source === "heads"
      ? [...this.chosen].filter((head) => head < has).sort((a, b) => a - b) : [0];
    this.single = heads.map((head) => this.weights(cells, head, source === "heads"));
    this.shownHeads = heads;
    const mean = (this.mean = new Float32Array(n * n));
    for (const one of this.single) for (let c = 0; c < one.length; c++) mean[c] += one[c];
    if (heads.length > 1) for (let c = 0; c < mean.length; c++) mean[c] /= heads.length;
    this.draw();
  }

  weights(cells, head, renormalise) {
    const n = this.count, from = head * n * n, found = new Float32Array(n * n);
    for (let i = 0; i < n; i++) {
      let seen = 1;
      if (state.causal && renormalise) {
        seen = 0;
        for (let j = 0; j <= i; j++) seen += WEIGHT[cells[from + i * n + j]];
      }
      const last = state.causal ? i + 1 : n;
      for (let j = 0; j < last; j++) {
        if (this.shown(i, j)) found[i * n + j] = WEIGHT[cells[from + i * n + j]] / (seen || 1);
      }
    }
    return found;
  }

  row(matrix, token, direction = state.direction) {
    const n = this.count, found = new Float32Array(n);
    for (let j = 0; j < n; j++) {
      found[j] = direction === "out" ? matrix[token * n + j] : matrix[j * n + token];
    }
    return found;
  }

  // ------------------------------------------------ the frame

  build() {
    this.stage = make("div", { class: "stage" });
    this.detail = make("section", { class: "detail", "aria-label": "The chosen token" });
    const layers = make("fieldset", { class: "chips layers" }, make("legend", {}, "Layer"));
    chips(layers, "radio", `layer-${this.number}`, this.layers.map((l, k) => [k, String(l)]),
      (k) => k === this.layer, (k) => { this.layer = k; this.refresh(); });
    this.headChips = make("fieldset", { class: "chips heads" }, make("legend", {}, "Heads"));
    chips(this.headChips, "checkbox", `head-${this.number}`,
      this.heads.map((h, k) => [k, String(h)]), (k) => this.chosen.has(k),
      (k, on) => { on ? this.chosen.add(k) : this.chosen.delete(k); this.refresh(); });
    const all = (text, which) => make("button", {
      type: "button", class: "plain", onclick: () => this.choose(which(), this.layer),
    }, text);
    this.headChips.append(all("all", () => [...this.heads.keys()]), all("none", () => []));
    for (const [k, label] of [...this.headChips.querySelectorAll("label")].entries()) {
      label.style.setProperty("--own", this.colour(k));
    }
    const sources = make("fieldset", { class: "chips" }, make("legend", {}, "Attention of"));
    const kinds = [["heads", "heads", "The mean of the heads chosen below"]];
    if (this.rollout) {
      kinds.push(["rollout", "rollout",
        "All layers up to this one multiplied, residual paths included (Abnar and Zuidema 2020)"]);
    }
    chips(sources, "radio", `source-${this.number}`, kinds, (s) => s === "heads", (s) => {
      this.source = s;
      this.headChips.hidden = s !== "heads";
      this.refresh();
    });
    this.choices = make("div", { class: "choices" });
    if (kinds.length > 1) this.choices.append(sources);
    this.choices.append(layers, this.headChips);
    const root = make("section", { class: "pane", "aria-label": this.title },
      make("h2", {}, this.title), make("p", {}, this.about), this.choices,
      make("div", { class: "body" }, this.stage, this.detail));
    document.getElementById("panes").append(root);
    this.root = root;
    new ResizeObserver(() => this.resize()).observe(root);
  }

  resize() {
    if (this.mean && this.width !== this.root.clientWidth) this.draw();
  }

  colour(head) {
    return `hsl(${Math.round((360 * head) / this.heads.length + 210) % 360} 58% 46%)`;
  }

  choose(heads, layer) {
    this.chosen = new Set(heads);
    this.layer = layer;
    const inputs = (name) => this.choices.querySelectorAll(`input[name="${name}-${this.number}"]`);
    for (const input of inputs("head")) input.checked = this.chosen.has(Number(input.value));
    for (const input of inputs("layer")) input.checked = Number(input.value) === layer;
    return this.refresh();
  }

  // Its text; of a piece that continues a word the piece, as the vocabulary spells it.
  label(token) {
    const { text, title } = this.tokens[token];
    return title?.startsWith("##") ? title : text;
  }

  // ------------------------------------------------ tokens a person can reach

  // A button for a token. One of a group takes part in the order of the Tab key; arrows move on.
  tokenButton(token, group, asked = false) {
    const { text, source, title } = this.tokens[token];
    // Not a <button>: those do not flow and break like text.
    const button = make("span", {
      role: "button", class: "token" + (source === null ? " special" : ""), title: title || "",
      tabIndex: token === (this.kept ?? 0) ? 0 : -1,
    }, state.view === "lines" ? this.label(token) : text);
    button.dataset.token = token;
    if (state.worth && this.worth[token]) {
      const share = this.worth[token] / Math.max(...this.worth.map(Math.abs));
      button.classList.add("worth");
      button.style.setProperty("--worth", `rgb(${css(share > 0 ? "--for" : "--against")})`);
      button.style.setProperty("--tall", `${(5 * Math.sqrt(Math.abs(share))).toFixed(1)}px`);
    }
    const show = () => this.point(token, asked);
    button.addEventListener("mouseenter", show);
    button.addEventListener("focus", () => { show(); this.say(token, asked); });
    button.addEventListener("mouseleave", () => this.point(this.kept, asked));
    button.addEventListener("click", () => {
      this.kept = this.kept === token ? null : token;
      this.point(token, asked);
    });
    button.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      const ends = { Home: 0, End: this.count - 1 };
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        button.click();
      }
      if (event.key === "Escape") {
        this.kept = null;
        this.point(null, asked);
      }
      const next = event.key in ends ? ends[event.key] : token + (steps[event.key] || 0);
      if (next === token || next < 0 || next >= this.count) return;
      event.preventDefault();
      button.tabIndex = -1;
      group[next].tabIndex = 0;
      group[next].focus();
    });
    group[token] = button;
    return button;
  }

  point(token, asked = false) {
    this.token = token;
    this.asked = asked;
    this.paint();
    this.tell();
  }

  say(token, asked) {
    const direction = asked ? "in" : state.direction;
    const best = this.strongest(this.row(this.mean, token, direction), 3);
    const words = best.map(([j, share]) => `${this.label(j)} ${percent(share)}`).join(", ");
    const verb = direction === "out" ? "attends to" : "is attended to by";
    document.getElementById("live").textContent =
      `${this.label(token)}, token ${this.first + token}, ${verb} ${words || "nothing shown"}`
      + (this.speaks(token) && `; ${this.speaks(token)}`);
  }

  // The importance of the word of a token for the prediction, in words.
  speaks(token) {
    const worth = this.worth[token];
    if (!state.worth || !worth) return "";
    return `${worth > 0 ? "supports" : "opposes"} the ${this.said}: `
      + `${worth > 0 ? "+" : "−"}${Math.abs(worth).toFixed(2)}`;
  }

  strongest(shares, most) {
    return [...shares.entries()].filter(([, share]) => share > 0.0005)
      .sort((a, b) => b[1] - a[1]).slice(0, most);
  }

  // ------------------------------------------------ drawing

  draw() {
    this.choices.hidden = state.view === "heads";
    this.width = this.root.clientWidth;
    this.stage.replaceChildren();
    this.buttons = [];
    this.stage.className = "stage " + state.view;
    this.stage.setAttribute("role", "group");
    this.stage.setAttribute("aria-label", ABOUT[state.view]);
    ({ text: this.drawText, lines: this.drawLines, matrix: this.drawMatrix,
      heads: this.drawHeads })[state.view].call(this);
    this.paint();
    this.tell();
  }

  paint() {
    if (!this.mean) return;
    if (state.view === "text") this.paintText();
    if (state.view === "lines") {
      this.strokes();
      this.paintLines();
    }
    if (state.view === "matrix") this.paintMatrix();
  }

  drawText() {
    let before = null;
    for (let t = 0; t < this.count; t++) {
      const button = this.tokenButton(t, this.buttons);
      const { apart, source } = this.tokens[t];
      if (t && source !== before && before === null && source === 1) {
        this.stage.append(make("span", { class: "turn" }));
      }
      if (apart && t) this.stage.append(" ");
      this.stage.append(button);
      before = source;
    }
  }

  // Colour by the attention of the chosen token; with none chosen, by the attention that each receives.
  paintText() {
    const n = this.count;
    let shares;
    if (this.token !== null) {
      shares = this.row(this.mean, this.token);
    } else {
      shares = new Float32Array(n);
      for (let c = 0; c < this.mean.length; c++) shares[c % n] += this.mean[c] / n;
    }
    // Special tokens draw so much that words would look alike: words set the scale.
    const words = shares.filter((_, t) => this.tokens[t].source !== null);
    const most = Math.max(1e-9, ...(words.length ? words : shares)), heat = css("--heat");
    for (const [t, button] of this.buttons.entries()) {
      const share = this.token !== null && shares[t] < state.floor / 5 ? 0 : shares[t];
      const strength = 0.75 * Math.sqrt(Math.min(1, share / most));
      button.style.backgroundColor = strength ? `rgb(${heat} / ${strength.toFixed(3)})` : "";
      button.style.color = strength > 0.3 ? "var(--ink)" : ""; // also of special tokens
      button.classList.toggle("chosen", t === this.token);
      button.classList.toggle("hidden", !this.visible(t));
    }
  }

  visible(token) {
    const { source } = this.tokens[token];
    if (source === null) return state.special;
    return state.between === "all" || state.between.includes("AB"[source]);
  }

  drawLines() {
    const width = this.stage.clientWidth, side = Math.min(190, Math.max(90, width * 0.27));
    const rows = make("div", { class: "rows" });
    rows.style.height = this.count * ROW + "px";
    this.canvas = make("canvas", { "aria-hidden": "true" });
    rows.append(this.canvas);
    this.right = [];
    for (let t = 0; t < this.count; t++) {
      const asks = this.tokenButton(t, this.buttons);
      const asked = this.tokenButton(t, this.right, true);
      asks.classList.add("asks");
      asked.classList.add("asked");
      for (const button of [asks, asked]) {
        button.style.top = t * ROW + "px";
        button.style.width = side + "px";
      }
      rows.append(asks, asked);
    }
    this.stage.append(make("div", { class: "ends" }, make("span", {}, "from"), make("span", {}, "to")), rows);
    for (const end of this.stage.querySelectorAll(".ends span")) end.style.width = side + "px";
    this.span = [side + 4, this.stage.clientWidth - side - 4];
    this.stage.onscroll = () => {
      this.waiting ||= requestAnimationFrame(() => { this.waiting = 0; this.strokes(); });
    };
    this.collect();
  }

  // All lines above the floor, the strongest first.
  collect() {
    const n = this.count, found = [];
    for (let floor = Math.max(state.floor, 0.004); ; floor *= 1.5) {
      found.length = 0;
      for (const [k, one] of this.single.entries()) {
        for (let c = 0; c < one.length; c++) {
          if (one[c] >= floor) found.push([(c / n) | 0, c % n, one[c], k]);
        }
      }
      if (found.length <= MOST || floor > 1) break;
    }
    this.edges = found;
  }

  strokes() {
    if (state.view !== "lines" || !this.canvas) return;
    const head = this.stage.querySelector(".ends").offsetHeight; // scrolls away before the tokens
    const top = Math.max(0, this.stage.scrollTop - head), height = this.stage.clientHeight;
    const bins = new Map();
    const drawing = surface(this.canvas, this.stage.clientWidth, Math.min(height, this.count * ROW));
    this.canvas.style.marginBottom = -this.canvas.clientHeight + "px";
    const [left, right] = this.span;
    const one = this.token !== null;
    const edges = one ? this.tokenEdges() : this.edges;
    // Many heads and many lines are drawn fainter, or all would be one blot.
    const crowd = one ? 1
      : Math.min(1, 2 / Math.sqrt(this.single.length)) * Math.min(1, 25 / Math.sqrt(edges.length));
    for (const [i, j, share, k] of edges) {
      const from = i * ROW + ROW / 2 - top, to = j * ROW + ROW / 2 - top;
      if ((from < 0 && to < 0) || (from > height && to > height)) continue;
      const strength = Math.ceil(Math.sqrt(share) * 12);
      const key = k * 16 + strength;
      if (!bins.has(key)) bins.set(key, new Path2D());
      bins.get(key).moveTo(left, from);
      bins.get(key).lineTo(right, to);
    }
    for (const [key, path] of [...bins].sort((a, b) => (a[0] % 16) - (b[0] % 16))) {
      const strength = (key % 16) / 12;
      drawing.globalAlpha = Math.min(1, crowd * ((one ? 0.25 : 0.08) + 0.8 * strength ** 2));
      drawing.lineWidth = (one ? 0.6 : 0.3) + (1 + 1.4 * crowd) * strength;
      drawing.strokeStyle = this.source === "heads"
        ? this.colour(this.shownHeads[(key / 16) | 0]) : css("--accent");
      drawing.stroke(path);
    }
  }

  paintLines() {
    const heat = css("--heat"), one = this.token !== null;
    const shares = one && this.row(this.mean, this.token, this.asked ? "in" : "out");
    const [own, other] = this.asked ? [this.right, this.buttons] : [this.buttons, this.right];
    for (let t = 0; t < this.count; t++) {
      const faint = !this.visible(t);
      own[t].classList.toggle("chosen", t === this.token);
      other[t].classList.remove("chosen");
      own[t].style.backgroundColor = "";
      other[t].style.backgroundColor = shares && shares[t] > 0.004
        ? `rgb(${heat} / ${(0.7 * Math.sqrt(shares[t])).toFixed(3)})` : "";
      other[t].style.color = shares && shares[t] > 0.1 ? "var(--ink)" : "";
      own[t].style.color = "";
      own[t].classList.toggle("hidden", faint);
      other[t].classList.toggle("hidden", faint);
    }
  }

  tokenEdges() {
    const found = [], n = this.count, floor = Math.min(state.floor, 0.01);
    for (const [k, one] of this.single.entries()) {
      for (let t = 0; t < n; t++) {
        const share = this.asked ? one[t * n + this.token] : one[this.token * n + t];
        if (share > floor) found.push(this.asked ? [t, this.token, share, k] : [this.token, t, share, k]);
      }
    }
    return found;
  }

  // ------------------------------------------------ the matrix

  drawMatrix() {
    const zoom = (by) => make("button", {
      type: "button", class: "plain", onclick: () => this.rescale(by),
      "aria-label": by === 0 ? "Show all" : by > 1 ? "Zoom in" : "Zoom out",
    }, by === 0 ? "fit" : by > 1 ? "+" : "−");
    this.reading = make("span", {});
    this.canvas = make("canvas", {
      tabIndex: 0, role: "application", // so that screen readers pass the arrow keys on
      "aria-label": "Matrix of attention: rows attend to columns. Arrow keys move.",
    });
    this.stage.append(make("div", { class: "bar" }, zoom(1.6), zoom(1 / 1.6), zoom(0), this.reading),
      this.canvas);
    this.image = this.picture(this.mean);
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect(), { cell, left, top } = this.frame();
      const column = Math.floor((event.clientX - box.left - left) / cell + this.zoom.x);
      const row = Math.floor((event.clientY - box.top - top) / cell + this.zoom.y);
      return [row, column];
    };
    const inside = (row, column) =>
      row >= Math.floor(this.zoom.y) && column >= Math.floor(this.zoom.x)
      && row < this.count && column < this.count;
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.drag) {
        const { cell } = this.frame();
        this.zoom.x = this.drag.x - (event.clientX - this.drag.fromX) / cell;
        this.zoom.y = this.drag.y - (event.clientY - this.drag.fromY) / cell;
        this.paintMatrix();
        return;
      }
      const [row, column] = at(event);
      if (inside(row, column)) this.moveTo(row, column, false);
    });
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = { fromX: event.clientX, fromY: event.clientY, x: this.zoom.x, y: this.zoom.y };
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const moved = Math.hypot(event.clientX - this.drag.fromX, event.clientY - this.drag.fromY);
      this.drag = null;
      const [row, column] = at(event);
      if (moved < 4 && inside(row, column)) {
        this.kept = this.kept === row ? null : row;
        this.moveTo(row, column, false);
      }
    });
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.rescale(event.deltaY < 0 ? 1.2 : 1 / 1.2, at(event));
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      const zooms = { "+": 1.6, "=": 1.6, "-": 1 / 1.6, "0": 0 };
      if (event.key in zooms) this.rescale(zooms[event.key], [this.zoom.row, this.zoom.column]);
      else if (event.key in moves) {
        const [down, across] = moves[event.key], last = this.count - 1;
        this.moveTo(Math.min(last, Math.max(0, this.zoom.row + down)),
          Math.min(last, Math.max(0, this.zoom.column + across)), true);
      } else return;
      event.preventDefault();
    });
  }

  // A picture with one pixel a cell, in the page's colour.
  picture(matrix) {
    const n = this.count, canvas = make("canvas", { width: n, height: n });
    const drawing = canvas.getContext("2d"), image = drawing.createImageData(n, n);
    const [red, green, blue] = css("--heat").split(" ").map(Number);
    const most = this.high(matrix);
    for (let c = 0; c < matrix.length; c++) {
      image.data[4 * c] = red;
      image.data[4 * c + 1] = green;
      image.data[4 * c + 2] = blue;
      image.data[4 * c + 3] = 255 * Math.sqrt(Math.min(1, matrix[c] / most));
    }
    drawing.putImageData(image, 0, 0);
    return canvas;
  }

  // What all but one in two hundred cells stay below: full colour begins there.
  high(matrix) {
    const counts = new Uint32Array(1001);
    for (let c = 0; c < matrix.length; c++) counts[Math.ceil(1000 * matrix[c])]++;
    let above = 0, code = 1000;
    while (code > 1 && (above += counts[code]) < matrix.length / 200) code--;
    return code / 1000;
  }

  frame() {
    const width = this.canvas.clientWidth || this.stage.clientWidth;
    const left = 92, top = 84, right = 36; // the last column's name is slanted
    const room = Math.max(80, width - left - right);
    const above = this.canvas.getBoundingClientRect().top + window.scrollY;
    const tall = Math.max(300, Math.min(room, window.innerHeight - above - top - 24));
    const cell = (Math.min(room, tall) / this.count) * this.zoom.scale;
    return { left, top, room, tall, cell, width };
  }

  rescale(by, around) {
    const zoom = this.zoom, before = this.frame().cell;
    zoom.scale = by === 0 ? 1 : Math.min(this.count / 4 + 1, Math.max(1, zoom.scale * by));
    const after = this.frame().cell;
    const [row, column] = around || [zoom.row, zoom.column];
    zoom.x = by === 0 ? 0 : column - ((column - zoom.x) * before) / after;
    zoom.y = by === 0 ? 0 : row - ((row - zoom.y) * before) / after;
    this.paintMatrix();
  }

  moveTo(row, column, aloud) {
    Object.assign(this.zoom, { row, column });
    if (aloud) {
      const { cell, room, tall } = this.frame();
      this.zoom.x = Math.min(column, Math.max(this.zoom.x, column + 1 - room / cell));
      this.zoom.y = Math.min(row, Math.max(this.zoom.y, row + 1 - tall / cell));
    }
    this.token = row;
    this.asked = false;
    const said = `${this.label(row)} → ${this.label(column)} `
      + percent(this.mean[row * this.count + column]);
    this.reading.textContent = said;
    if (aloud) document.getElementById("live").textContent = said;
    this.paintMatrix();
    this.tell();
  }

  paintMatrix() {
    if (state.view !== "matrix" || !this.image) return;
    const { left, top, room, tall, cell, width } = this.frame(), zoom = this.zoom;
    const most = (space) => Math.max(0, this.count - space / cell);
    zoom.x = Math.min(most(room), Math.max(0, zoom.x));
    zoom.y = Math.min(most(tall), Math.max(0, zoom.y));
    const across = Math.min(room, cell * this.count), down = Math.min(tall, cell * this.count);
    const drawing = surface(this.canvas, width, top + down + 2);
    drawing.imageSmoothingEnabled = cell * (window.devicePixelRatio || 1) < 1;
    drawing.drawImage(this.image, zoom.x, zoom.y, across / cell, down / cell, left, top, across, down);
    drawing.strokeStyle = css("--line");
    drawing.strokeRect(left - 0.5, top - 0.5, across + 1, down + 1);
    drawing.font = "12px system-ui, sans-serif";
    drawing.textBaseline = "middle";
    drawing.fillStyle = css("--soft");
    drawing.fillText("from ↓  to →", 2, 8);
    const step = Math.max(1, Math.ceil(12 / cell)); // not every token has room for its name
    for (let t = 0; t < this.count; t++) {
      const x = left + (t + 0.5 - zoom.x) * cell, y = top + (t + 0.5 - zoom.y) * cell;
      const row = t === zoom.row, column = t === zoom.column;
      const named = t % step === 0;
      if (y > top && y < top + down && ((named && Math.abs(t - zoom.row) >= step) || row)) {
        drawing.fillStyle = css(row ? "--mark" : "--soft");
        drawing.textAlign = "right";
        drawing.fillText(this.clipped(t), left - 5, y);
      }
      if (x > left && x < left + across && ((named && Math.abs(t - zoom.column) >= step) || column)) {
        drawing.save();
        drawing.translate(x, top - 6);
        drawing.rotate(-Math.PI / 3);
        drawing.fillStyle = css(column ? "--mark" : "--soft");
        drawing.textAlign = "left";
        drawing.fillText(this.clipped(t), 0, 0);
        drawing.restore();
      }
    }
    drawing.strokeStyle = css("--mark");
    drawing.lineWidth = 1.5;
    const x = left + (zoom.column - zoom.x) * cell, y = top + (zoom.row - zoom.y) * cell;
    drawing.save();
    drawing.beginPath();
    drawing.rect(left, top, across, down);
    drawing.clip();
    drawing.strokeRect(x, y, Math.max(cell, 3), Math.max(cell, 3));
    drawing.restore();
  }

  clipped(token) {
    const text = this.label(token);
    return text.length > 12 ? text.slice(0, 11) + "…" : text;
  }

  // ------------------------------------------------ all heads

  async drawHeads() {
    const grid = make("div", { class: "grid" });
    grid.style.gridTemplateColumns = `26px repeat(${this.heads.length}, minmax(30px, 84px))`;
    grid.append(make("span", { class: "label" }, ""));
    for (const head of this.heads) grid.append(make("span", { class: "label" }, `${head}`));
    this.stage.append(grid);
    const turn = this.turn, buttons = new Map();
    grid.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      if (!(event.key in moves)) return;
      const [layer, head] = event.target.dataset.head.split(" ").map(Number);
      const [down, across] = moves[event.key];
      const next = buttons.get(`${layer + down} ${head + across}`);
      event.preventDefault();
      if (!next) return;
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
    for (const [layer, name] of this.layers.entries()) {
      const cells = await this.cells(layer, "heads");
      if (turn !== this.turn || state.view !== "heads") return;
      grid.append(make("span", { class: "label" }, `${name}`));
      for (const [head, title] of this.heads.entries()) {
        if (head >= this.counts[layer]) {
          grid.append(make("span", { class: "label", title: "pruned" }, "·"));
          continue;
        }
        const from = head * this.count ** 2;
        const about = this.character((i, j) => WEIGHT[cells[from + i * this.count + j]]);
        const known = `layer ${name}, head ${title}`;
        const tell = () => this.detail.replaceChildren(make("h3", {}, known), make("p", {}, about));
        const button = make("button", {
          type: "button", title: about, "aria-label": `${known}: ${about}`,
          tabIndex: buttons.size ? -1 : 0, onmouseenter: tell, onfocus: tell,
          onclick: () => { setView("lines"); this.choose([head], layer); },
        }, this.thumbnail(cells, head));
        button.dataset.head = `${layer} ${head}`;
        buttons.set(button.dataset.head, button);
        const chosen = layer === this.layer && this.chosen.size === 1 && this.chosen.has(head);
        button.classList.toggle("chosen", chosen);
        grid.append(button);
      }
      await new Promise(requestAnimationFrame);
    }
  }

  // A small picture: the strongest cell of each square of cells.
  thumbnail(cells, head) {
    const n = this.count, size = Math.min(n, 64), step = n / size;
    const canvas = make("canvas", { width: size, height: size });
    const drawing = canvas.getContext("2d"), image = drawing.createImageData(size, size);
    const [red, green, blue] = css("--heat").split(" ").map(Number);
    const from = head * n * n, place = Uint16Array.from({ length: n }, (_, t) => (t / step) | 0);
    const most = new Uint8Array(size * size);
    const plain = state.special && state.between === "all" && !state.causal;
    for (let i = 0; i < n; i++) {
      const line = place[i] * size;
      for (let j = 0; j < n; j++) {
        const value = cells[from + i * n + j];
        if (value <= most[line + place[j]]) continue;
        if (plain || (this.shown(i, j) && !(state.causal && j > i))) {
          most[line + place[j]] = value;
        }
      }
    }
    for (let c = 0; c < most.length; c++) {
      image.data.set([red, green, blue, most[c]], 4 * c);
    }
    drawing.putImageData(image, 0, 0);
    return canvas;
  }

  // What kind of head is it? Where most of its attention goes.
  character(weight) {
    const n = this.count;
    const shares = { "the previous token": 0, "the next token": 0, "the token itself": 0,
      "special tokens": 0 };
    for (let i = 0; i < n; i++) {
      if (i > 0) shares["the previous token"] += weight(i, i - 1);
      if (i < n - 1) shares["the next token"] += weight(i, i + 1);
      shares["the token itself"] += weight(i, i);
      for (const j of this.specials ??= this.specialTokens()) {
        shares["special tokens"] += weight(i, j);
      }
    }
    const [where, total] = Object.entries(shares).sort((a, b) => b[1] - a[1])[0];
    return total / n > 0.2 ? `${percent(total / n)} on ${where}` : "spread out";
  }

  specialTokens() {
    return [...this.tokens.keys()].filter((t) => this.tokens[t].source === null);
  }

  // ------------------------------------------------ the chosen token in numbers

  tell() {
    if (!this.mean) return;
    const hints = {
      text: "Colour: mean attention that each token receives. Point at a token to see its own; click to pin it.",
      lines: "Point at a token to see what it attends to, and which tokens attend to it; click to pin it.",
      matrix: "Rows attend to columns. Point at a cell to read its value; click to pin its row.",
      heads: "Rows are layers, columns are heads. Point at one to see where most of its attention goes; "
        + "click to open it.",
    };
    if (this.token === null || state.view === "heads") {
      const mean = this.mean, n = this.count;
      const about = this.character((i, j) => mean[i * n + j]);
      this.detail.replaceChildren(
        ...(state.view === "heads" ? [] : [make("h3", {}, `${this.selection()}: ${about}`)]),
        make("p", {}, hints[state.view]));
      return;
    }
    const t = this.token, name = make("b", {}, this.label(t));
    const where = this.unit === 1 ? `token ${this.first + t}` : `block ${t}`;
    this.detail.replaceChildren(
      make("h3", {}, name, ` · ${where} · ${this.selection()}`),
      make("p", {}, ...this.contrast(t)),
      ...(this.speaks(t) ? [make("p", { class: "speaks" }, `Its word ${this.speaks(t)}.`)] : []),
      make("div", { class: "columns" },
        this.table("attends to", this.row(this.mean, t, "out")),
        this.table("is attended to by", this.row(this.mean, t, "in"))));
  }

  selection() {
    const layer = `layer ${this.layers[this.layer]}`;
    if (this.source !== "heads") return `rollout up to ${layer}`;
    const heads = this.shownHeads.map((h) => this.heads[h]);
    if (heads.length === 1) return `${layer}, head ${heads[0]}`;
    return `${layer}, mean of ${heads.length === this.counts[this.layer] ? "all" : heads.length} heads`;
  }

  // The contrast: what a left-to-right model could not see.
  contrast(t) {
    const n = this.count, out = this.row(this.mean, t, "out");
    if (state.causal) {
      return [`Left to right, it sees ${t + 1} of ${n} tokens and none that follow.`];
    }
    let later = 0, total = 0;
    for (let j = 0; j < n; j++) {
      total += out[j];
      if (j > t) later += out[j];
    }
    const said = [`${percent(later)} of its attention goes to later tokens, which a left-to-right model cannot see`
      + ` (it sees ${t + 1} of ${n}).`];
    if (this.partial && total < 0.995) said.push(` ${percent(1 - total)} goes to tokens that are not shown.`);
    return said;
  }

  table(caption, shares) {
    const body = make("tbody"), best = this.strongest(shares, 8);
    for (const [j, share] of best) {
      const bar = make("i");
      bar.style.width = Math.max(1, (100 * share) / best[0][1]) + "%";
      body.append(make("tr", {}, make("td", {}, this.label(j)),
        make("td", { class: "share" }, percent(share)),
        make("td", { class: "bar", "aria-hidden": "true" }, bar)));
    }
    return make("table", {}, make("caption", {}, caption), body);
  }
}

// ---------------------------------------------------------------- what all panes share

const panes = page.panes.map((data, number) => new Pane(data, number));
const refresh = () => Promise.all(panes.map((pane) => pane.refresh()));
const redraw = () => panes.forEach((pane) => pane.mean && pane.draw());

const explained = panes.find((pane) => pane.worth.length);

function explain() {
  const said = [];
  if (state.causal) {
    said.push("Left to right: each token attends to itself and to earlier tokens only. Weights are computed "
      + "from the same scores with later tokens masked; the model itself was trained to see both sides.");
  }
  if (state.worth && explained) {
    said.push(`Underlined: words that support the ${explained.said} (green) or oppose it (orange), by the `
      + "decrease of its log probability when the word is masked.");
  }
  document.getElementById("note").textContent = said.join(" ");
  document.getElementById("direction").hidden = state.view !== "text";
  document.getElementById("floor").parentElement.hidden = !["text", "lines"].includes(state.view);
}

function setView(view) {
  state.view = view;
  for (const input of document.querySelectorAll('input[name="view"]')) {
    input.checked = input.value === view;
  }
  explain();
  redraw();
}

const field = (id) => document.getElementById(id);
chips(field("views"), "radio", "view",
  [["text", "Text"], ["lines", "Lines"], ["matrix", "Matrix"], ["heads", "All heads"]],
  (view) => view === state.view, setView);
chips(field("direction"), "radio", "direction",
  [["out", "attends to"], ["in", "is attended to by"]],
  (value) => value === state.direction, (value) => { state.direction = value; redraw(); });
chips(field("between"), "radio", "between",
  [["all", "all"], ["AA", "A → A"], ["AB", "A → B"], ["BA", "B → A"], ["BB", "B → B"]],
  (value) => value === state.between, (value) => { state.between = value; refresh(); });
field("between").hidden = !panes.some((pane) => pane.tokens.some((token) => token.source === 1));
chips(field("switches"), "checkbox", "switch", [
  ["special", "special tokens", "[CLS], [SEP] and the like; weights stay as they are"],
  ["causal", "left to right", "Hide the tokens that a left-to-right model cannot see"],
  ...(explained ? [["worth", "word importance", "The words that the prediction depends on"]] : []),
], (name) => state[name], (name, on) => { state[name] = on; explain(); refresh(); });

const floor = field("floor");
const showFloor = () => {
  state.floor = floor.value / 100;
  field("floor-value").textContent = floor.value + " %";
};
floor.addEventListener("input", () => { showFloor(); redraw(); });
showFloor();

const wanted = window.matchMedia("(prefers-color-scheme: dark)");
let theme = wanted.matches ? "dark" : "light";
const setTheme = () => {
  document.documentElement.dataset.theme = theme;
  field("theme").textContent = theme === "dark" ? "Light" : "Dark";
  redraw();
};
field("theme").addEventListener("click", () => {
  theme = theme === "dark" ? "light" : "dark";
  setTheme();
});
wanted.addEventListener("change", () => { theme = wanted.matches ? "dark" : "light"; setTheme(); });
setTheme();
explain();
refresh().then(() => { document.documentElement.dataset.ready = "yes"; });
})();
