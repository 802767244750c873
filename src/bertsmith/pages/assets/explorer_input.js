// Explorer, page: the texts, their word pieces, and changing a word by a click.
"use strict";
const has = (name) => page.panels.includes(name);
const PAIRS = has("answer") || has("next_sentence") || has("sentence_order");
const both = () => (state.second ? [find("first").value, find("second").value] : [find("first").value, null]);

// ------------------------------------------------------------------ texts to begin with

function examples() {
  const passage = "The Analytical Engine was designed by Charles Babbage. Ada Lovelace wrote the first program for it in 1843.";
  const list = page.examples.map((text) => [text, ...(has("answer") ? [passage] : [])]);
  if (list.length) return list;
  if (has("answer")) list.push(["Who wrote the first program?", passage], ["When was it written?", passage]);
  if (has("tag")) list.push(["Ada Lovelace was born in London and worked with Charles Babbage."], ["Marie Curie moved from Warsaw to Paris in 1891."]);
  if (has("classify")) list.push(["A warm and funny film that I would watch again."], ["Two hours of my life that I will never get back."]);
  if (has("masked_lm") && MASK) {
    list.push([`She studied at the ${MASK} of Vienna.`], [`He sat by the ${MASK} of the river and watched the boats.`],
      [`She put her money in the ${MASK}.`], [`The ${MASK} barked at the stranger all night.`]);
  }
  if (has("next_sentence") || has("sentence_order")) list.push(["She studied the violin in Vienna.", "Later she played in an orchestra."], ["She studied the violin in Vienna.", "The engine has four cylinders."]);
  if (list.length === 0 || page.panels.length === 1) list.push(["A cat sat on the mat.", "A kitten lay on the rug."], ["A cat sat on the mat.", "The stock market fell."]);
  return list;
}

function setTexts(first, second) {
  find("first").value = first;
  if (second !== null && second !== undefined) find("second").value = second;
  showSecond(second !== null && second !== undefined);
}

function showSecond(shown) {
  state.second = shown;
  find("second-row").hidden = !shown;
  find("pair").textContent = shown ? "Remove the second text" : "Add a second text";
}

function buildInput() {
  const first = find("first");
  if (has("answer")) { find("first-label").textContent = "Question"; find("second-label").textContent = "Passage"; }
  const tools = [];
  if (MASK && has("masked_lm")) {
    tools.push(button(`Insert ${MASK}`, () => {
      first.setRangeText(MASK, first.selectionStart, first.selectionEnd, "end");
      first.focus();
      typed(0);
    }));
  }
  tools.push(button("", () => { showSecond(!state.second); typed(0); }, { id: "pair", hidden: has("answer") }));
  find("tools").append(...tools);
  const list = examples();
  find("examples").append("Try: ", ...list.map(([one, two]) => button(two && !has("answer") ? `${one} · ${two}` : one, () => { setTexts(one, two); typed(0); })));
  find("texts").addEventListener("input", () => typed());
  find("texts").addEventListener("submit", (event) => event.preventDefault());
  setTexts(...list[0]);
  roving(find("tokens"));
}

// ------------------------------------------------------------------ running

let timer = 0, round = 0, running = false, again = false;

function typed(milliseconds = 220) {
  state.former = null;
  later(milliseconds);
}

function later(milliseconds = 0) {
  clearTimeout(timer);
  timer = setTimeout(() => run().then(remember), milliseconds);
}

// Only the newest text counts: what is typed while the worker is busy waits for it. What is on the
// screen is drawn first; `drawn` counts that, `runs` when all of the page is up to date.
async function run() {
  if (running) { again = true; return; }
  running = true;
  find("try").setAttribute("aria-busy", "true");
  const [first, second] = both(), marks = document.documentElement.dataset, own = ++round;
  let rest = [];
  try {
    const switches = { off: [...state.off], skipped: [...state.skipped], ...(page.film ? { checkpoint: state.checkpoint } : {}) };
    const result = await ask("run", { first, second, ...switches });
    result.similarity = !second?.trim() || !first.trim() || page.panels.length > 1 && has("answer") ? null : (await ask("compare", { first, second, ...switches })).similarity;
    const chosen = state.token === null ? null : state.result.tokens[state.token].text;
    state.result = result;
    state.token = nextToken(result.tokens, chosen);
    state.cell = state.wanted.cell ?? state.cell;
    if (state.layer === null) startHead(result);
    state.texts = [first, second];
    state.wanted = { token: null, cell: null };
    rest = await showAll();
  } catch (error) {
    find("answers").replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
  }
  running = false;
  find("try").setAttribute("aria-busy", "false");
  marks.drawn = own;
  if (again) { again = false; await run(); return; }
  if (page.film) await new Promise((done) => setTimeout(done, 120)); // the next step may come first
  for (const draw of rest) if (own === round) await draw();
  if (own !== round) return;
  marks.ready = "yes";
  marks.runs = Number(marks.runs || 0) + 1;
}

// The piece that was chosen, if it is still there.
function nextToken(tokens, text) {
  if (state.wanted.token !== null && state.wanted.token < tokens.length) return state.wanted.token;
  if (text !== null && tokens[state.token]?.text === text) return state.token;
  const same = tokens.findIndex((token) => token.text === text);
  return same >= 0 ? same : startToken(tokens);
}

// The first mask, else the longest piece: something worth looking at.
function startToken(tokens) {
  const mask = tokens.findIndex((token) => token.id === page.tokenizer.mask_id);
  if (mask >= 0) return mask;
  const sizes = tokens.map((token) => (token.special ? 0 : token.text.length));
  return Math.max(0, sizes.indexOf(Math.max(...sizes)));
}

// The head in which the chosen piece looks most at words, not at separators or itself.
function startHead({ tokens, maps }) {
  const count = tokens.length, words = tokens.flatMap((token, at) => (token.special || at === state.token || !/\p{L}/u.test(token.text) ? [] : [at]));
  let best = -1;
  Object.assign(state, { layer: 0, head: 0 });
  maps.forEach((map, layer) => {
    for (let head = 0; head < map.length / count / count; head++) {
      const most = Math.max(0, ...words.map((at) => map[(head * count + state.token) * count + at]));
      if (most > best) { best = most; Object.assign(state, { layer, head }); }
    }
  });
}

// ------------------------------------------------------------------ pieces

function showTokens() {
  const { tokens } = state.result;
  find("tokens").replaceChildren(...tokens.map((token, row) => {
    const kind = [token.special ? "special" : "", token.unknown ? "unknown" : "", token.segment ? "second" : ""].filter(Boolean).join(" ");
    const place = token.source === null || token.special && token.start === token.end ? "a special token that stands in no text" : `characters ${token.start} to ${token.end} of the ${token.source ? "second" : "first"} text`;
    const about = token.unknown ? "; the vocabulary has no token for this" : "";
    return make("button", {
      type: "button", class: kind, "aria-pressed": String(row === state.token), tabindex: row === state.token ? "0" : "-1",
      title: `${place}${about}`, "data-row": row, onclick: () => chooseToken(row),
    }, token.text || "␣", make("small", {}, String(token.id)));
  }));
  showEdit();
}

async function chooseToken(row) {
  state.token = row;
  for (const one of document.querySelectorAll("[data-row]")) {
    const own = Number(one.dataset.row) === row;
    if (one.hasAttribute("aria-pressed")) one.setAttribute("aria-pressed", String(own));
    if (one.parentElement.id === "tokens") one.tabIndex = own ? 0 : -1;
    one.classList.toggle("chosen", own);
  }
  showEdit();
  drawHead();
  await showSteps();
  await showLens();
  remember();
}

// The characters of the word that a piece belongs to.
function wordOf(row) {
  const { tokens } = state.result, token = tokens[row];
  const own = tokens.filter((one) => one.source === token.source && one.word === token.word && !one.special);
  if (token.special || !own.length) return { start: token.start, end: token.end };
  return { start: Math.min(...own.map((one) => one.start)), end: Math.max(...own.map((one) => one.end)) };
}

function showEdit() {
  const token = state.result.tokens[state.token], bar = find("edit");
  const fixed = !token || token.source === null || token.start === token.end;
  const undo = state.undo.length ? button("Undo", undoChange, { class: "undo" }) : null;
  if (fixed) {
    bar.replaceChildren(...[make("span", {}, token ? `${token.text} is put there by the tokenizer and cannot be changed.` : ""), undo].filter(Boolean));
    return;
  }
  const { start, end } = wordOf(state.token), field = find(token.source ? "second" : "first");
  const word = [...field.value].slice(start, end).join("");
  const input = make("input", { type: "text", size: "12", "aria-label": `Another word for ${word}`, placeholder: "another word", spellcheck: "false" });
  const replace = () => { if (input.value.trim()) change(state.token, input.value.trim(), `“${shortly(word)}” → “${shortly(input.value.trim())}”`); };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); replace(); } });
  const mask = MASK && token.id !== page.tokenizer.mask_id
    ? button(`Mask “${shortly(word)}”`, () => change(state.token, MASK, `“${shortly(word)}” masked`, word)) : null;
  bar.replaceChildren(...[mask, make("span", { class: "pair" }, input, button("Replace", replace)), undo].filter(Boolean));
}

// Put other words in the place of a piece's word; the answer so far is kept to compare with.
function change(row, text, about, original = null) {
  const { start, end } = wordOf(row), field = find(state.result.tokens[row].source ? "second" : "first");
  const letters = [...field.value];
  let before = letters.slice(0, start).join("");
  let piece = text;
  if (piece.startsWith("##")) { piece = piece.slice(2); before = before.trimEnd(); } // it continues a word
  keep(about, original);
  field.value = before + piece + letters.slice(end).join("");
  later();
}

function keep(about, original = null) {
  state.undo.push({ first: find("first").value, second: state.second ? find("second").value : null, off: [...state.off], skipped: [...state.skipped] });
  state.former = { about, original, answers: state.result.answers, similarity: state.result.similarity };
}

function undoChange() {
  const back = state.undo.pop();
  state.former = { about: "undone", answers: state.result.answers, similarity: state.result.similarity };
  setTexts(back.first, back.second);
  state.off = new Set(back.off);
  state.skipped = new Set(back.skipped);
  later();
}

// Switch a head ("layer.head") or a layer off or on again.
function toggle(set, key, about) {
  keep(`${about} ${set.has(key) ? "on again" : "off"}`);
  if (set.has(key)) set.delete(key);
  else set.add(key);
  later();
}
