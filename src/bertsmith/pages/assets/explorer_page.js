// Explorer, page: embeddings, the states of one piece layer by layer, and the start of the page.
"use strict";

// ------------------------------------------------------------------ embeddings

const PARTS = { token: "token", segment: "segment", position: "position", sum: "sum", states: "first states" };

function embeddingsAbout() {
  const { config } = page, parts = ["one for the token itself"];
  if (config.segments) parts.push("one for the text it is in (the segment: first or second)");
  if (config.positions) parts.push("one for its position");
  const listed = parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}` : parts[0];
  const vectors = parts.length > 1 ? `A token enters the model as ${parts.length === 3 ? "three" : "two"} learned vectors that are added: ${listed}.` : "A token enters the model as one learned vector.";
  const places = config.bases ? " Every layer reads the position of a token from a rotation of its vectors (rotary positions), so there is no position vector."
    : config.distances ? " Every layer reads the position of a token from vectors of its distance to others, so the sum need not hold it." : "";
  return `${vectors}${places} ${strips(config.embedding_width || config.width)}: blue is above zero, orange below. After a normalisation${config.project_embedding ? " and a projection" : ""} these are the first states.`;
}

function strips(width) {
  return width > CELLS ? `A vector has ${width} values; each strip shows them as ${CELLS} means of neighbours` : `Each strip shows the ${width} values of a vector`;
}

function showEmbeddings() {
  const { embedding, tokens } = state.result;
  const names = Object.keys(PARTS).filter((name) => embedding[name] && !(name === "sum" && !embedding.segment && !embedding.position));
  const count = tokens.length, scales = {};
  for (const name of names) {
    const size = embedding[name].length / count, means = [];
    for (let at = 0; at + 8 <= embedding[name].length; at += Math.max(8, Math.floor(size / CELLS))) means.push(embedding[name][at] / 2);
    scales[name] = scaleOf(means);
  }
  const head = make("thead", {}, make("tr", {}, make("th"), ...names.map((name) => make("th", { scope: "col" }, (name === "states" ? "→ " : name === "token" ? "" : name === "sum" ? "= " : "+ ") + PARTS[name]))));
  const rows = tokens.map((token, row) => make("tr", { "data-row": row, class: row === state.token ? "chosen" : null }, make("th", { scope: "row" }, shortly(token.text || "␣", 14)),
    ...names.map((name) => {
      const size = embedding[name].length / count;
      return make("td", {}, strip(embedding[name].subarray(row * size, (row + 1) * size), scales[name]));
    })));
  find("embeddings").replaceChildren(head, make("tbody", {}, ...rows));
}

// ------------------------------------------------------------------ layer by layer

async function showLens() {
  const row = state.token;
  if (row === null || !state.result.tokens[row]) return;
  const { depths } = await ask("lens", { row, top: 4 });
  if (row !== state.token) return;
  const token = state.result.tokens[row], masked = token.id === page.tokenizer.mask_id, guessed = depths[0].best;
  find("lens-about").textContent = `Each layer reads the states of all tokens and writes new ones. Here is the state of “${token.text}” after every layer${guessed
    ? ", and what the model would guess if it had to answer there already. The head was trained on the last layer only, so early guesses are a hint, not an answer."
    : ", and the tokens of your text whose states are most like it (cosine similarity)."}`;
  const scales = depths.map(({ state: vector }) => scaleOf(vector) / 2.5);
  const head = make("tr", {}, make("th", {}, "after"), make("th", {}, "state"), make("th", { colspan: 4 }, guessed ? "best guesses" : "most similar tokens"), guessed && !masked ? make("th", {}, `“${shortly(token.text, 10)}” itself`) : null);
  const rows = depths.map((depth, number) => {
    const name = number === 0 ? "embedding (depth 0)" : `layer ${number - 1} (depth ${number})`;
    const cells = (depth.best || depth.alike).map((guess) => {
      const cell = make("td", { class: "guess" }, shortly(guess.text, 14), make("small", {}, guessed ? percent(guess.score) : guess.score.toFixed(2)));
      cell.style.setProperty("--weight", Math.max(0, guessed ? guess.score : guess.score ** 3 * 0.8));
      return cell;
    });
    const own = depth.own && !masked ? make("td", { class: "guess own" }, percent(depth.own.score), make("small", {}, `rank ${depth.own.rank.toLocaleString("en")}`)) : null;
    return make("tr", { class: state.skipped.has(number - 1) ? "gone" : null }, make("th", { scope: "row" }, name), make("td", {}, strip(depth.state, scales[number])), ...cells, own);
  });
  find("lens").replaceChildren(make("table", { class: "lens" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

// ------------------------------------------------------------------ everything

// The parts of the page, by their elements, and what draws them.
const PARTS_SHOWN = [
  ["overview", showOverview], ["pieces", showTokens], ["embeddings-part", showEmbeddings], ["attention-part", () => { if (LAYERS) showGrid(); showHead(); }],
  ["steps-part", showSteps], ["layers-part", showLens],
  ...(page.film ? [["training", showTraining], ["words-part", showWordsPart]] : []),
];

function onScreen(part) {
  const { top, bottom } = part.getBoundingClientRect();
  return bottom > -100 && top < window.innerHeight + 100;
}

// Draw what is on the screen; the parts above and below are returned for later.
async function showAll() {
  showAnswers();
  const rest = [];
  for (const [id, draw] of PARTS_SHOWN) {
    if (onScreen(find(id))) await draw();
    else rest.push(draw);
  }
  return rest;
}

async function drawAgain() {
  readColours();
  if (state.result) for (const draw of await showAll()) await draw();
}

find("theme").addEventListener("click", () => {
  const root = document.documentElement, now = getComputedStyle(root).colorScheme;
  const dark = now === "dark" || (now !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.style.colorScheme = dark ? "light" : "dark";
  drawAgain();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
let width = 0;
new ResizeObserver(() => {
  if (width && Math.abs(width - document.body.clientWidth) > 4) drawHead();
  width = document.body.clientWidth;
}).observe(document.body);

async function start() {
  readColours();
  buildInput();
  recall();
  roving(find("head-steps"));
  roving(find("grid"), () => Math.max(1, headsOf(0)));
  find("embeddings-about").textContent = embeddingsAbout();
  try {
    await openModel();
    find("app").hidden = false; // laid out, but not seen until everything is drawn: nothing jumps
    if (!LAYERS) for (const id of ["steps-part", "feed-part"]) find(id).hidden = true;
    await run();
    find("loading").remove();
    find("app").classList.remove("waiting");
  } catch (error) {
    find("loading").textContent = `The model could not be opened: ${error.message}`;
  }
}
start();
