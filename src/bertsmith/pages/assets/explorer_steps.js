// Explorer, page: the arithmetic of a head and of the feed-forward step, for the chosen piece.
"use strict";
const number = (value, digits = 2) => (Number.isFinite(value) ? value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1") : "−∞").replace("-", "−");
const lengthOf = (vector) => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
let steps = null; // what the worker said last

async function showSteps() {
  const { layer, head, token: row } = state;
  if (!LAYERS || row === null || layer === null || head >= headsOf(layer)) return;
  const asked = await ask("steps", { layer, head, row });
  if (asked.layer !== state.layer || asked.head !== state.head || asked.row !== state.token) return;
  steps = asked;
  if (state.cell === null || state.cell >= state.result.tokens.length) state.cell = steps.weights.indexOf(Math.max(...steps.weights));
  const { tokens } = state.result, name = shortly(tokens[row].text, 14);
  find("steps-about").textContent = `Layer ${layer}, head ${head}, seen from “${name}”. From its state the head makes a query, from every state a key and a value, each of ${steps.query.length} numbers. The query meets every key; the scores become weights that add up to 1; the values are mixed by these weights. Choose a row to see its score worked out.`;
  const scale = scaleOf([...steps.keys, steps.query].flatMap((one) => [...one])), wide = scaleOf(steps.values.flatMap((one) => [...one]));
  const columns = ["token", "key", steps.relative ? "score (with distance)" : "score", "weight", "value"];
  const rows = tokens.map((token, at) => make("tr", { class: at === state.cell ? "chosen" : null },
    make("th", { scope: "row" }, button(shortly(token.text || "␣", 14), () => chooseCell(at), { "data-cell": at, "aria-pressed": String(at === state.cell), tabindex: at === state.cell ? "0" : "-1" })),
    make("td", {}, strip(steps.keys[at], scale)), make("td", { class: "number" }, number(steps.scores[at])),
    make("td", { class: "number weight" }, percent(steps.weights[at])), make("td", {}, strip(steps.values[at], wide))));
  rows.forEach((one, at) => one.querySelector(".weight").style.setProperty("--weight", steps.weights[at]));
  find("head-steps").replaceChildren(make("thead", {}, make("tr", {}, ...columns.map((column) => make("th", { scope: "col" }, column)))), make("tbody", {}, ...rows));
  find("query").replaceChildren(`query of “${name}”`, strip(steps.query, scale));
  find("mixed").replaceChildren("sum of weight × value", strip(steps.mixed, wide));
  showCell();
  showFeed(name);
}

function chooseCell(at) {
  state.cell = at;
  for (const one of find("head-steps").querySelectorAll("[data-cell]")) {
    const own = Number(one.dataset.cell) === at;
    one.setAttribute("aria-pressed", String(own));
    one.tabIndex = own ? 0 : -1;
    one.closest("tr").classList.toggle("chosen", own);
  }
  showCell();
  remember();
}

// Query · key for one cell: every product, and what they add up to.
function showCell() {
  const { query, keys, scores, weights, scale, divisor, relative } = steps, { tokens } = state.result, at = state.cell, key = keys[at];
  const products = query.map((value, place) => value * key[place]), sum = products.reduce((a, b) => a + b, 0);
  const order = [...products.keys()].sort((a, b) => Math.abs(products[b]) - Math.abs(products[a])).slice(0, 4);
  const row = (values, label) => make("tr", {}, make("th", { scope: "row" }, label), ...[...values].map((value) => make("td", {}, number(value))));
  const distance = relative && Number.isFinite(scores[at]) ? scores[at] - sum * scale : 0, all = scores.filter(Number.isFinite), most = Math.max(...all);
  find("cell").replaceChildren(
    make("h3", {}, `“${shortly(tokens[steps.row].text)}” meets “${shortly(tokens[at].text)}”`),
    make("p", { class: "sum" }, `query · key = ${number(sum)}, `, `÷ √${divisor} = ${number(sum * scale)}`, relative ? `, ${number(distance)} for the distance: ${number(scores[at])}` : ""),
    make("p", { class: "sum" }, `softmax: e^(${number(scores[at])} − ${number(most)}) ÷ ${number(all.reduce((total, one) => total + Math.exp(one - most), 0))} = ${percent(weights[at])}`),
    make("p", { class: "soft" }, `Largest of the ${query.length} products: ${order.map((place) => `number ${place}: ${number(query[place])} × ${number(key[place])} = ${number(products[place])}`).join("; ")}.`),
    make("details", {}, make("summary", {}, `All ${query.length} numbers`), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Query, key and their products" },
      make("table", { class: "numbers" }, make("tbody", {}, row([...query.keys()].map(Number), "number"), row(query, "query"), row(key, "key"), row(products, "product"))))));
  find("cell").querySelectorAll(".numbers tr:first-child td").forEach((cell, place) => { cell.textContent = place; });
}

// What the piece's state becomes in this layer: attention is added, then the feed-forward network.
function showFeed(name) {
  const { input, attended, middle, wide, bent, fed, output, layer } = steps;
  const scale = scaleOf([...input, ...middle, ...output]), inner = scaleOf(bent) * 3 || 1, part = (label, vector, about, size = scale) => make("li", {}, make("span", {}, label), strip(vector, size), make("small", {}, about));
  const active = bent.reduce((count, value) => count + (Math.abs(value) > 0.1), 0);
  const order = [...bent.keys()].sort((a, b) => Math.abs(bent[b]) - Math.abs(bent[a])).slice(0, 5);
  find("feed-about").textContent = `Layer ${layer} for “${name}”: what attention brings is added to the state; then a small network reads the state of this token alone: an up-projection to ${bent.length} numbers, the activation ${page.config.activation.replace(/_.*/, "")}${page.config.gated ? " with a gate" : ""}, and a down-projection.`;
  find("feed").replaceChildren(
    part("state before the layer", input, `length ${number(lengthOf(input))}`), part("+ from all heads", attended, `length ${number(lengthOf(attended))}`),
    part(page.config.pre_norm ? "= state" : "= state, normalised", middle, `length ${number(lengthOf(middle))}`),
    part("up-projection", wide, `${wide.length} numbers`, scaleOf(wide)), part("activation", bent, `${active} of ${bent.length} beyond ±0.1; largest: ${order.map((place) => `number ${place} (${number(wide[place])} → ${number(bent[place])})`).join(", ")}`, inner),
    part("down-projection, + to the state", fed, `length ${number(lengthOf(fed))}`), part("state after the layer", output, `length ${number(lengthOf(output))}`));
}
