// Training page: the text, the curves, and the guesses while a worker trains the model.
"use strict";
const AT_ONCE = 4, SCORED = 20, LAST = 600; // steps of a message, steps between scores, steps in all
const FACTS = [
  ["cat", "sleeps", "house"], ["dog", "barks", "yard"], ["fish", "swims", "river"], ["bird", "sings", "tree"],
  ["horse", "runs", "field"], ["bear", "hides", "forest"], ["child", "plays", "garden"], ["baker", "works", "kitchen"],
];
const KINDS = ["small", "old", "happy", "young", "quiet", "brown", "tired", "clever"], TIMES = ["today", "every day", "at night", "in the morning", "again"];
const EXAMPLE = FACTS.flatMap(([who, does, where], n) => KINDS.flatMap((kind, k) => [
  `The ${kind} ${who} ${does} in the ${where} ${TIMES[(n + k) % TIMES.length]}.`, `Every ${kind} ${who} often ${does} in the ${where}.`,
])).join("\n");

const worker = new Worker(URL.createObjectURL(new Blob([find("worker").textContent], { type: "text/javascript" })));
const waiting = new Map();
let sent = 0, training = false, current = "", curves = [], size = 0;
worker.onmessage = ({ data }) => {
  const [done, failed] = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.error) failed(new Error(data.error)); else done(data);
};
const ask = (name, message = {}) => new Promise((...both) => { waiting.set(++sent, both); worker.postMessage({ ...message, ask: name, id: sent }); });
const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)}%`;

function line(kind, points, x, y) {
  const one = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  one.setAttribute("class", kind);
  one.setAttribute("points", points.map(([step, loss]) => `${x(step)},${y(loss)}`).join(" "));
  return one;
}

function element(name, attributes, text = "") {
  const one = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.textContent = text;
  return one;
}

function draw() {
  const top = Math.ceil(Math.max(Math.log(size || 2), ...curves.map((one) => Math.max(one.train, one.held ?? 0)))), last = Math.max(100, curves.at(-1)?.step ?? 0);
  const x = (step) => 40 + 590 * step / last, y = (loss) => 215 - 200 * loss / top, parts = [];
  for (let loss = 0; loss <= top; loss += 2) parts.push(element("line", { x1: 40, x2: 630, y1: y(loss), y2: y(loss) }), element("text", { x: 10, y: y(loss) + 4 }, loss));
  for (const step of [0, last / 2, last]) parts.push(element("text", { x: x(step) - 8, y: 234 }, Math.round(step)));
  if (size) parts.push(element("line", { class: "chance", x1: 40, x2: 630, y1: y(Math.log(size)), y2: y(Math.log(size)) }));
  parts.push(line("train", curves.map((one) => [one.step, one.train]), x, y), line("held", curves.filter((one) => one.held).map((one) => [one.step, one.held]), x, y));
  find("curves").replaceChildren(...parts);
}

async function fill() {
  const { guesses } = await ask("fill", { text: find("masked").value });
  find("guesses").replaceChildren(...guesses.map(({ token, score }) => make("li", {}, make("span", {}, token), make("progress", { max: 1, value: score, "aria-label": token }), make("span", {}, percent(score)))));
}

function stop(reason) {
  training = false;
  find("train").textContent = "Train";
  if (reason) find("status").textContent = reason;
}

async function train() {
  if (training) return stop();
  training = true;
  find("train").textContent = "Stop";
  try {
    const text = find("text").value;
    let about = "";
    if (text !== current || (curves.at(-1)?.step ?? 0) >= LAST) {
      const start = await ask("begin", { text });
      [current, curves, size] = [text, [], start.tokens];
      find("status").textContent = `${start.sentences} sentences, ${start.tokens} tokens, ${start.parameters.toLocaleString("en")} parameters.`;
    }
    while (training) {
      const done = await ask("learn", { steps: AT_ONCE }), point = { step: done.step, train: done.loss };
      if (done.step % SCORED === 0) {
        const held = await ask("score");
        point.held = held.loss;
        about = `, held-out ${held.loss.toFixed(2)}, accuracy at masks ${percent(held.accuracy)}`;
        await fill();
      }
      curves.push(point);
      draw();
      find("status").textContent = `Step ${done.step}: loss ${done.loss.toFixed(2)}${about}.`;
      document.documentElement.dataset.step = done.step;
      if (done.step >= LAST) stop();
    }
  } catch (error) {
    stop(error.message);
  }
}

find("text").value = EXAMPLE;
find("masked").value = "The old fish [MASK] in the river.";
find("train").addEventListener("click", train);
find("masked").addEventListener("input", () => { if (current) fill(); });
draw();
document.documentElement.dataset.ready = "yes";
