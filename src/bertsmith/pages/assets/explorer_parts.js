// Explorer, page: what all panels share: elements, colours, the state, the link to the worker.
"use strict";
const page = JSON.parse(document.getElementById("page").textContent);
const LAYERS = page.config.plan.length;
const MASK = page.tokenizer.mask;

// What is shown. The texts are what the fields hold; `former` is the answer before the last change.
const state = {
  second: false, off: new Set(), skipped: new Set(), result: null, former: null, undo: [],
  token: null, layer: null, head: 0, cell: null, view: "lines",
  wanted: { token: null, cell: null }, // what the address asks for, once the text is read
};

const button = (text, onclick, more = {}) => make("button", { type: "button", onclick, ...more }, text);
const clipped = (text) => (text.length > 32 ? text.slice(0, 30).trimEnd() + "…" : text);
const percent = (value) => (value * 100).toLocaleString("en", { maximumFractionDigits: value < 0.0995 ? 1 : 0, minimumFractionDigits: value < 0.0995 ? 1 : 0 }) + "%";
const shortly = (text, most = 16) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);

// ------------------------------------------------------------------ colours and canvases

// A colour of the page as three numbers: styles know it only as light-dark(…).
function colour(name) {
  const probe = make("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return numbers.slice(0, 3);
}

let ink = {};
function readColours() {
  ink = { up: colour("--accent"), down: colour("--warm"), text: colour("--ink"), soft: colour("--soft") };
}

const rgba = ([r, g, b], alpha) => `rgba(${r}, ${g}, ${b}, ${alpha})`;

// Cells of a picture, a pixel each; `shade` gives a number from -1 (orange) to 1 (blue).
function pixels(canvas, width, height, shade) {
  canvas.width = width;
  canvas.height = height;
  const drawing = canvas.getContext("2d"), image = drawing.createImageData(width, height), { data } = image;
  for (let cell = 0, at = 0; cell < width * height; cell++, at += 4) {
    const value = shade(cell), tone = value < 0 ? ink.down : ink.up;
    data[at] = tone[0];
    data[at + 1] = tone[1];
    data[at + 2] = tone[2];
    data[at + 3] = 255 * Math.min(1, Math.abs(value));
  }
  drawing.putImageData(image, 0, 0);
  return canvas;
}

// A vector as a strip of at most `cells` colours: the mean of neighbours, blue above zero.
const CELLS = 48; // of a strip: each shows the mean of neighbouring values

function strip(vector, scale, cells = CELLS) {
  const count = Math.min(cells, vector.length), size = vector.length / count;
  const means = Array.from({ length: count }, (_, cell) => {
    const own = vector.subarray(Math.round(cell * size), Math.max(Math.round(cell * size) + 1, Math.round((cell + 1) * size)));
    return own.reduce((sum, value) => sum + value, 0) / own.length;
  });
  const canvas = make("canvas", { class: "strip", "aria-hidden": "true" });
  return pixels(canvas, count, 1, (at) => means[at] / scale);
}

// What counts as a strong colour: nine of ten means are weaker.
function scaleOf(rows) {
  const sizes = Float32Array.from(rows, Math.abs).sort();
  return sizes[Math.floor(sizes.length * 0.9)] || 1;
}

// A canvas as large as the screen's pixels; drawn on in CSS pixels.
function surface(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const drawing = canvas.getContext("2d");
  drawing.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawing.clearRect(0, 0, width, height);
  return drawing;
}

// Arrow keys move the focus inside a group; only one of its buttons is a tab stop.
function roving(group, across = () => 1) {
  group.addEventListener("keydown", (event) => {
    const all = [...group.querySelectorAll("button")], at = all.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across(), ArrowUp: -across(), Home: -at, End: all.length - 1 - at }[event.key];
    if (step === undefined || at < 0) return;
    event.preventDefault();
    const next = all[Math.max(0, Math.min(all.length - 1, at + step))];
    all.forEach((one) => { one.tabIndex = one === next ? 0 : -1; });
    next.focus();
  });
}

// ------------------------------------------------------------------ the worker

const source = new Blob([find("worker").textContent], { type: "text/javascript" });
const worker = new Worker(URL.createObjectURL(source));
const waiting = new Map();
let asked = 0;

worker.onmessage = ({ data }) => {
  const { resolve, reject } = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.error) reject(new Error(data.error));
  else resolve(data);
};

function ask(name, message = {}) {
  return new Promise((resolve, reject) => {
    asked += 1;
    waiting.set(asked, { resolve, reject });
    worker.postMessage({ id: asked, ask: name, ...message });
  });
}

// Transfer the weights tensor by tensor, and free the base64 text that they were decoded from.
async function openModel() {
  await ask("open", { settings: page });
  const parts = [...document.querySelectorAll("script.weights")];
  let at = 0;
  for (const [number, part] of parts.entries()) {
    const text = part.textContent.trim();
    part.remove();
    await ask("part", { text, at });
    at += (text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);
    find("progress").value = (number + 1) / parts.length;
  }
  await ask("close");
  page.weights = null;
  page.tokenizer.model = null;
}
