// The labelling page: one text at a time. An answer is on the server's disk before the next text is shown.
"use strict";
const page = JSON.parse(document.getElementById("page").textContent);
const marking = page.asks === "mark";
const labels = page.named ? page.labels : ["answer"];
const color = (label) => `var(--c${Math.max(0, labels.indexOf(label)) % 8})`;
const characters = (text) => Array.from(text);
const percent = (value) => `${Math.round(100 * value)}%`;

const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
const unique = () => hex(crypto.getRandomValues(new Uint8Array(12)));
const tab = unique();
const known = {}; // the person's answers, by the names of texts: shown again after an undo

let state = null; // what the server said last
let text = null; // the text on the page
let answer = null; // what is chosen or marked
let stored = null; // in blind mode, an answer whose suggestion is shown: {seen, following}
let busy = false;

const settings = { get: (name) => { try { return localStorage.getItem(name); } catch { return null; } }, set: (name, value) => { try { localStorage.setItem(name, value); } catch { /* private windows */ } } };
const by = () => find("by").value.trim() || "me";

// ------------------------------------------------------------------ the server

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const wait = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

// Sent again until the server answers: events have a number, so that none counts twice.
async function post(path, body = {}) {
  const headers = { "Content-Type": "application/json" };
  if (page.key) headers.Authorization = `Bearer ${find("key").value}`;
  const content = JSON.stringify({ by: by(), tab, ...body });
  for (let attempt = 0; ; attempt += 1) {
    let response = null;
    let result = null;
    try {
      response = await fetch(path, { method: "POST", headers, body: content });
      result = await response.json();
    } catch {
      say("The server does not answer; this page tries again. Nothing is lost.", true);
      await wait(Math.min(5000, 300 * 2 ** attempt));
      continue;
    }
    if (!response.ok) throw new Refused(response.status, result.error || "the server refused this");
    return result;
  }
}

function say(message, problem = false) {
  find("status").textContent = message;
  find("status").classList.toggle("problem", problem);
}

async function working(job) {
  if (busy) return;
  busy = true;
  find("card").setAttribute("aria-busy", "true");
  try {
    await job();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 409) {
      show(await post("next"));
      say("That text was labelled in another tab; its label was kept.", true);
    } else say(error.message, true);
  } finally {
    busy = false;
    find("card").setAttribute("aria-busy", "false");
  }
}

const next = () => working(async () => { say(""); show(await post("next")); });

const send = (value, skip = false) => working(async () => {
  if (!text) return;
  say("");
  const seen = stored ? stored.seen : text.seen;
  const done = await post("answer", { id: unique(), name: text.name, answer: value, seen, skip });
  known[text.name] = value;
  const given = done.stored.suggestion;
  if (page.blind && given && !skip && !equal(given.answer, value) && !stored) {
    answer = value;
    stored = { seen: done.stored.seen, following: done.next };
    suggest(given, `Stored. The model says otherwise, with ${percent(given.confidence)}:`, "Keep mine");
    draw();
  } else show(done.next);
});

const undo = () => working(async () => {
  say("");
  const back = await post("undo", { id: unique() });
  show(back);
  if (back.text && back.text.name in known) {
    answer = known[back.text.name] ?? answer;
    draw();
  }
});

const equal = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// ------------------------------------------------------------------ what is shown

function show(fresh) {
  state = fresh;
  text = fresh.text;
  stored = null;
  answer = text?.answer ?? (marking || page.several ? [] : null);
  cursor = { anchor: 0, head: 0 };
  find("filter").value = "";
  counts();
  find("suggestion").hidden = true;
  if (text?.suggestion && text.answer === null) {
    suggest(text.suggestion, `The model suggests, with ${percent(text.suggestion.confidence)}:`, "Accept");
    if (marking) answer = text.suggestion.answer;
  }
  if (document.activeElement !== find("guidelines")) find("guidelines").value = fresh.guidelines;
  draw();
  if (many()) find("filter").focus({ preventScroll: true });
  else if (!["INPUT", "TEXTAREA"].includes(document.activeElement.tagName)) find("card").focus({ preventScroll: true });
  document.documentElement.dataset.text = text ? text.name : "none";
}

function counts() {
  find("bar").style.width = percent(state.total ? state.labelled / state.total : 0);
  const parts = [`${state.mine.toLocaleString("en")} by you`, `${state.labelled.toLocaleString("en")} of ${state.total.toLocaleString("en")} texts have a label`];
  if (state.skipped) parts.push(`${state.skipped} skipped`);
  const { score } = state;
  if (score) {
    const between = score.low === null ? "" : ` (${percent(score.low)} to ${percent(score.high)})`;
    parts.push(`${score.metric.replaceAll("_", " ")} ${percent(score.value)}${between} on ${score.count} held-out texts`);
  }
  if (state.training) parts.push("the model is learning");
  find("counts").textContent = parts.join(" · ");
}

const spoken = (value) => {
  if (marking) return value.length ? value.map(([start, end, label]) => `${characters(text.passages[page.at]).slice(start, end).join("")}${page.named ? ` (${label})` : ""}`).join(", ") : "nothing";
  if (Array.isArray(value)) return value.length ? value.join(", ") : "no label";
  return String(value);
};

function suggest(given, sentence, button) {
  const box = find("suggestion");
  const accept = () => (stored ? show(stored.following) : send(given.answer));
  const key = make("kbd", {}, "Enter");
  box.replaceChildren(make("span", {}, `${sentence} `, make("b", {}, typeof given.answer === "number" ? given.answer.toFixed(2) : spoken(given.answer))));
  if (stored || !marking) box.append(make("button", { type: "button", onclick: accept }, `${button} `, key));
  box.hidden = false;
}

const names = () => text?.choices ?? labels;
const many = () => !marking && !text?.choices && labels.length > 10;
// Labels that are digits (0, 1, 2) have themselves as keys: pressing 2 must not store 1.
const keys = () => (names().every((name) => /^[0-9]$/.test(name)) ? names() : names().map((_, number) => String((number + 1) % 10)));
const visible = () => {
  const part = find("filter").value.trim().toLowerCase();
  return many() && part ? names().filter((name) => name.toLowerCase().replaceAll("_", " ").includes(part.replaceAll("_", " "))) : names();
};

function draw() {
  const passages = text ? text.passages.map((one, number) => {
    if (marking && number === page.at) return words(one);
    const role = text.passages.length < 2 ? null : number ? "second" : page.named ? null : "question";
    return make("p", { class: role }, one);
  }) : [make("p", {}, state.total ? "No text is left to label. Thank you." : "The data have no text.")];
  find("text").replaceChildren(...passages);
  find("filter").hidden = !many() || !text;
  const chosen = (name) => (marking ? active === name && labels.length > 1 : page.several ? answer.includes(name) : answer === name);
  const pressed = keys();
  const buttons = visible().map((name, number) => make("button", { type: "button", "aria-pressed": String(chosen(name)), onclick: () => choose(name) },
    marking ? dot(name) : null, marking && !page.named ? "Mark as the answer" : name, many() || number > 9 ? null : make("kbd", {}, pressed[number])));
  find("choices").replaceChildren(...(text ? buttons : []));
  find("choices").className = text?.choices ? "own" : many() ? "many" : "";
  find("done").hidden = !text || !(marking || page.several);
  find("done").firstChild.textContent = marking && !answer?.length ? (page.named ? "Nothing to mark " : "No answer in it ") : "Done ";
  find("skip").hidden = !text;
}

function dot(name) {
  const element = make("span", { class: "dot" });
  element.style.setProperty("--own", color(name));
  return element;
}

function choose(name) {
  if (!text || busy) return;
  if (marking) {
    active = name;
    mark();
  } else if (page.several) {
    answer = answer.includes(name) ? answer.filter((one) => one !== name) : names().filter((one) => one === name || answer.includes(one));
    find("filter").value = "";
    draw();
  } else if (stored && name === answer) show(stored.following);
  else send(name);
}

function enter() {
  if (!text) return;
  if (stored) show(stored.following);
  else if (marking || (page.several && (answer.length || !text.suggestion))) send(answer);
  else if (many() && find("filter").value.trim()) { if (visible().length) choose(visible()[0]); }
  else if (text.suggestion && names().includes(text.suggestion.answer)) send(text.suggestion.answer);
  else if (text.suggestion && page.several) send(text.suggestion.answer);
  else if (answer !== null && !page.several) send(answer);
}

// ------------------------------------------------------------------ marks

let active = labels[0]; // the label that the next part gets
let cursor = { anchor: 0, head: 0 };
let pieces = []; // words and what is between them, in characters
let dragging = false;

function split(passage) {
  const letters = characters(passage);
  const found = [];
  const push = (start, end, word) => { if (end > start) found.push({ start, end, word, text: letters.slice(start, end).join("") }); };
  if (text.words) {
    let done = 0;
    for (const [start, end] of text.words) { push(done, start, false); push(start, end, true); done = end; }
    push(done, letters.length, false);
    return found;
  }
  let done = 0;
  for (const one of new Intl.Segmenter(undefined, { granularity: "word" }).segment(passage)) {
    const length = characters(one.segment).length;
    push(done, done + length, one.segment.trim() !== "");
    done += length;
  }
  return found;
}

function words(passage) {
  pieces = split(passage);
  const places = pieces.map((one, number) => (one.word ? number : -1)).filter((number) => number >= 0);
  const [first, last] = [Math.min(cursor.anchor, cursor.head), Math.max(cursor.anchor, cursor.head)];
  const box = make("p", { class: "words" });
  pieces.forEach((piece, number) => {
    const over = answer.filter(([start, end]) => start < piece.end && end > piece.start);
    const place = places.indexOf(number);
    const inside = number >= places[first] && number <= places[last];
    let element = make("span", { class: `word${inside && first !== last ? " chosen" : ""}${place === cursor.head ? " here" : ""}`, "data-place": place < 0 ? null : place }, piece.text);
    if (over.length) {
      const shortest = over.reduce((one, other) => (other[1] - other[0] < one[1] - one[0] ? other : one));
      const ends = over.filter(([, end]) => end === piece.end);
      element = make("mark", {}, element, ...ends.map((one) => make("small", { title: "Remove", onclick: () => remove(one) }, `${page.named ? one[2] : ""} ×`)));
      element.style.setProperty("--own", color(shortest[2]));
    }
    box.append(element);
  });
  box.addEventListener("pointerdown", (event) => {
    const place = placeOf(event.target);
    if (place === null || event.button) return;
    dragging = event.pointerType === "mouse" || event.pointerType === "pen";
    const extend = event.shiftKey || (!dragging && cursor.touched && cursor.anchor === cursor.head && place !== cursor.head);
    cursor = { anchor: extend ? cursor.anchor : place, head: place, touched: !extend };
    if (dragging) event.preventDefault();
    draw();
  });
  return box;
}

const placeOf = (element) => (element?.dataset?.place === undefined ? null : Number(element.dataset.place));

document.addEventListener("pointermove", (event) => {
  const place = dragging ? placeOf(document.elementFromPoint(event.clientX, event.clientY)) : null;
  if (place === null || place === cursor.head) return;
  cursor.head = place;
  draw();
});

document.addEventListener("pointerup", () => {
  if (dragging && cursor.anchor !== cursor.head) mark();
  dragging = false;
});

// The chosen words get the active label; other marks of the same words give way, unless marks may overlap.
function mark() {
  const found = pieces.filter((one) => one.word);
  const [first, last] = [Math.min(cursor.anchor, cursor.head), Math.max(cursor.anchor, cursor.head)];
  if (!found.length) return;
  const [start, end] = [found[first].start, found[last].end];
  const gone = ([left, right, label]) => (page.overlap ? left === start && right === end && label === active : left < end && right > start);
  answer = [...answer.filter((one) => !gone(one)), [start, end, active]].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  cursor = { anchor: last, head: last };
  draw();
}

function remove(one) {
  answer = answer.filter((other) => !equal(one, other));
  draw();
}

function move(step, extend) {
  const count = pieces.filter((one) => one.word).length;
  cursor.head = Math.max(0, Math.min(count - 1, cursor.head + step));
  if (!extend) cursor.anchor = cursor.head;
  draw();
}

// ------------------------------------------------------------------ keys

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  const filter = target === find("filter");
  const typing = (["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) && !filter) || event.isComposing;
  const pressed = target.tagName === "BUTTON" && (key === "Enter" || key === " ") && !target.closest("#choices");
  if (typing || pressed || event.altKey || !text && key !== "Backspace" && key !== "z") return;
  if ((event.ctrlKey || event.metaKey) && key === "z") { if (!filter || !target.value) { event.preventDefault(); undo(); } return; }
  if (event.ctrlKey || event.metaKey || target.tagName === "SUMMARY") return;
  const empty = !filter || !target.value;
  const digit = /^[0-9]$/.test(key) && !many() ? names()[keys().slice(0, 10).indexOf(key)] : undefined;
  let used = true;
  if (key === "Enter") enter();
  else if (key === " " && empty) send(null, true);
  else if (key === "Backspace" && empty) undo();
  else if (digit !== undefined) choose(digit);
  else if (marking && (key === "ArrowRight" || key === "ArrowLeft")) move(key === "ArrowRight" ? 1 : -1, event.shiftKey);
  else if (marking && key === "Delete") {
    const here = pieces.filter((one) => one.word)[cursor.head];
    answer = answer.filter(([start, end]) => !(start < here.end && end > here.start));
    draw();
  } else used = false;
  if (used) event.preventDefault();
});

find("filter").addEventListener("input", draw);
find("done").addEventListener("click", () => (stored ? show(stored.following) : send(answer)));
find("skip").addEventListener("click", () => send(null, true));
find("undo").addEventListener("click", undo);

// ------------------------------------------------------------------ people

const decimal = (value) => (value === null ? "n/a" : value.toFixed(2));

async function people() {
  const box = find("people");
  const found = await post("agreement");
  const about = found.texts ? `${found.texts} texts have labels of several people, who differ on ${found.disagreed}. Krippendorff's alpha is ${decimal(found.alpha)}.` : "No text has labels of two people yet.";
  box.replaceChildren(make("h2", {}, "Agreement"), make("p", {}, about));
  if (found.pairs.length) {
    const rows = found.pairs.map((one) => make("tr", {}, make("th", {}, one.people.join(" and ")), make("td", { class: "number" }, String(one.units)), make("td", { class: "number" }, decimal(one.kappa))));
    box.append(make("div", { class: "wide" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "People"), make("th", { class: "number" }, "Labels"), make("th", { class: "number" }, "Cohen's kappa"))), make("tbody", {}, ...rows))));
  }
  const mine = text;
  for (const one of found.shown) {
    text = one;
    const choices = Object.entries(one.answers).map(([who, value]) => make("button", {
      type: "button", "aria-pressed": String(equal(value, one.decision)), title: "Decide for this label",
      onclick: () => working(async () => { await post("answer", { id: unique(), name: one.name, answer: value, seen: one.seen, final: true }); await people(); }),
    }, `${who}: ${spoken(value)}`));
    box.append(make("article", {}, ...one.passages.map((passage) => make("p", {}, passage)), make("div", { class: "tools" }, ...choices, one.decision === null ? "undecided" : "decided")));
  }
  text = mine;
}

find("agreement").addEventListener("click", async () => {
  find("people").hidden = !find("people").hidden;
  if (!find("people").hidden) await people();
});

// ------------------------------------------------------------------ the rest of the page

let writing = 0;
find("guidelines").addEventListener("input", (event) => {
  clearTimeout(writing);
  writing = setTimeout(() => post("guidelines", { id: unique(), text: event.target.value }), 600);
});
find("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (document.documentElement.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.style.colorScheme = dark ? "light" : "dark";
  settings.set("theme", document.documentElement.style.colorScheme);
});
document.documentElement.style.colorScheme = settings.get("theme") ?? "";
find("by").value = settings.get("by") ?? "me";
find("by").addEventListener("change", () => { settings.set("by", by()); find("by").blur(); next(); });
if (page.key) find("key").addEventListener("change", next);
find("setup").addEventListener("submit", (event) => event.preventDefault());
next().then(() => { document.documentElement.dataset.ready = ""; });
