// Explorer, page: the state in the address, the overview, and the tour.
"use strict";

// ------------------------------------------------------------------ the address

// #text=…&second=…&token=4&layer=1&head=0&cell=2&view=matrix&off=0.1,1.0&skipped=0&step=64, all of them optional.
// #panel=attention,arithmetic shows these parts alone, and #theme=dark chooses the colours, for a page that has this one in a frame.
const numberIn = (text, most) => (/^\d{1,9}$/.test(text ?? "") && Number(text) <= most ? Number(text) : null);

function recall() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("text")) setTexts(given.get("text"), given.get("second"));
  state.layer = numberIn(given.get("layer"), LAYERS - 1) ?? state.layer;
  state.head = state.layer === null ? state.head : Math.min(numberIn(given.get("head"), 1e4) ?? state.head, Math.max(0, headsOf(state.layer) - 1));
  for (const name of ["token", "cell"]) state.wanted[name] = numberIn(given.get(name), page.longest - 1);
  if (["lines", "matrix"].includes(given.get("view"))) state.view = given.get("view");
  state.off = new Set((given.get("off") ?? "").split(",").filter((key) => /^\d+\.\d+$/.test(key)));
  state.skipped = new Set((given.get("skipped") ?? "").split(",").flatMap((key) => numberIn(key, LAYERS - 1) ?? []));
  const step = page.film ? page.film.steps.findIndex((one) => String(one.step) === given.get("step")) : -1;
  if (step >= 0) goTo(step, false);
  if (["light", "dark"].includes(given.get("theme"))) document.documentElement.style.colorScheme = given.get("theme");
  readColours();
  showPanels(given.get("panel"));
}

function showPanels(wanted) {
  document.documentElement.classList.toggle("embedded", wanted !== null);
  const names = wanted ? wanted.split(",") : null;
  for (const part of document.querySelectorAll("[data-panel]")) part.hidden = names !== null && !names.includes(part.dataset.panel);
  find("alone").hidden = wanted === null;
}

// What an address needs to show the same again.
function remember() {
  const [first, second] = both(), now = new URLSearchParams(location.hash.slice(1)), kept = new URLSearchParams({ text: first });
  const set = (name, value) => { if (value !== null && value !== undefined && value !== "") kept.set(name, value); };
  set("second", second);
  for (const name of ["token", "layer", "head", "cell"]) set(name, state[name]);
  set("view", state.view === "matrix" ? "matrix" : null);
  set("off", [...state.off].join(","));
  set("skipped", [...state.skipped].join(","));
  if (page.film) set("step", page.film.steps[state.checkpoint].step);
  for (const name of ["panel", "theme"]) set(name, now.get(name));
  try { history.replaceState(null, "", `#${kept}`); } catch { /* too many changes at once: the next one is kept */ }
  kept.delete("panel");
  find("alone").href = `#${kept}`;
}

window.addEventListener("hashchange", () => { recall(); later(0); });

// ------------------------------------------------------------------ the overview

function goToPart(id) {
  const part = find(id);
  part.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  part.querySelector("h2").focus({ preventScroll: true });
}

// The whole model as a row of boxes; each leads to its part.
function showOverview() {
  const { tokens, answers } = state.result, { width } = page.config, shape = `${tokens.length} × ${width}`;
  const box = (name, about, act, more = {}) => make("li", {}, make("button", { type: "button", onclick: act, ...more }, name, make("small", {}, about)));
  const layers = Array.from({ length: LAYERS }, (_, layer) => box(`Layer ${layer}`, `${headsOf(layer)} ${headsOf(layer) === 1 ? "head" : "heads"}, feed-forward`,
    () => { chooseHead(layer, Math.min(state.head, headsOf(layer) - 1)); goToPart("attention-part"); }, { "aria-pressed": String(layer === state.layer), class: state.skipped.has(layer) ? "gone" : null }));
  const mask = answers.masked_lm?.[0]?.best[0], label = answers.classify ? page.labels[answers.classify.indexOf(Math.max(...answers.classify))] : null;
  find("flow").replaceChildren(
    box("Tokens", `${tokens.length} of the text`, () => goToPart("pieces")), box("Embeddings", shape, () => goToPart("embeddings-part")), ...layers,
    box("States", shape, () => goToPart("layers-part")), box("Answer", mask ? `“${shortly(mask.text, 12)}” ${percent(mask.score)}` : label ?? "beside your text", () => goToPart("try")));
}

// ------------------------------------------------------------------ the tour

const TOUR = [
  ["try", "Your text", "Write a sentence. The model reads it while you type, and answers beside it."],
  ["pieces", "Tokens", "It reads tokens: words, or pieces of rare words. Choose one, here or anywhere below, to follow it through the model."],
  ["embeddings-part", "Embeddings", "Each token begins as a vector: a row of numbers, drawn as colours."],
  ["attention-part", "Attention", "Each small square is a head. Choose one to see which token attends to which, and switch it off to see whether the answer needs it."],
  ["steps-part", "A head by hand", "The same head as arithmetic: query, keys, scores, weights, values. Choose a row to see its score worked out."],
  ["feed-part", "Feed-forward", "After attention, a small network changes the state of each token alone."],
  ["layers-part", "Layer by layer", "What the model would answer if it stopped after each layer. The address of this page keeps all that you chose: copy it to share it."],
];
let stopAt = -1;

function tour(at) {
  const stops = TOUR.filter(([id]) => find(id) && !find(id).hidden);
  document.querySelector(".toured")?.classList.remove("toured");
  stopAt = at;
  find("tour").hidden = at < 0 || at >= stops.length;
  if (find("tour").hidden) { stopAt = -1; find("start-tour").focus(); return; }
  const [id, title, text] = stops[at], last = at === stops.length - 1;
  find("tour-title").textContent = title;
  find("tour-text").textContent = text;
  find("tour-back").disabled = at === 0;
  find("tour-next").textContent = last ? "Done" : "Next";
  find(id).classList.add("toured");
  find(id).scrollIntoView({ block: "start" });
  find("tour-next").focus({ preventScroll: true });
}

find("start-tour").addEventListener("click", () => tour(0));
find("tour-next").addEventListener("click", () => tour(stopAt + 1));
find("tour-back").addEventListener("click", () => tour(stopAt - 1));
find("tour-close").addEventListener("click", () => tour(-1));
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && stopAt >= 0) tour(-1); });
