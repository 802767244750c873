// Explorer, page of a film: the slider over the steps, the guesses and words at each, the curves.
"use strict";
const STEPS = page.film.steps, LAST = STEPS.length - 1;
const SECOND = 700; // milliseconds that each step is shown while the film plays
const slider = find("checkpoint");
const million = (count) => (count < 1e5 ? count.toLocaleString("en") : `${(count / 1e6).toLocaleString("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 })} M`);
let playing = 0, shown = null, guessed = null, pass = 0;

// ------------------------------------------------------------------ the slider

function goTo(number, runs = true) {
  state.checkpoint = Math.max(0, Math.min(LAST, number));
  slider.value = state.checkpoint;
  state.former = null;
  sayStep();
  if (runs) later(0);
}

function sayStep() {
  const { step, tokens } = STEPS[state.checkpoint];
  const about = `Step ${step.toLocaleString("en")} of ${STEPS[LAST].step.toLocaleString("en")}, ${million(tokens)} tokens read`;
  find("step").textContent = step === 0 ? "Step 0: random weights" : about;
  slider.setAttribute("aria-valuetext", about);
  document.querySelectorAll(".ticks span").forEach((tick, at) => tick.classList.toggle("now", at === state.checkpoint));
  const column = find("guesses").querySelector(`[data-at="${state.checkpoint}"]`), frame = find("over");
  if (column) frame.scrollLeft = column.offsetLeft - frame.clientWidth / 2;
  document.querySelectorAll("[data-at]").forEach((cell) => cell.classList.toggle("now", Number(cell.dataset.at) === state.checkpoint));
  document.querySelectorAll(".chart svg").forEach((svg) => moveCursor(svg, step));
}

function play() {
  if (playing) return stop();
  goTo(state.checkpoint === LAST ? 0 : state.checkpoint + 1);
  playing = setInterval(() => { if (state.checkpoint === LAST) stop(); else if (!running) goTo(state.checkpoint + 1); }, SECOND);
  find("play").textContent = "Stop";
}

function stop() {
  clearInterval(playing);
  playing = 0;
  find("play").textContent = "Play";
}

// ------------------------------------------------------------------ curves

// The line at the step that is shown, and the values of all curves there.
function moveCursor(svg, step) {
  const cursor = svg.querySelector(".cursor"), outputs = svg.closest("figure").querySelectorAll("output");
  const at = svg.closest("figure").querySelector(".at");
  let place = null;
  svg.querySelectorAll(".line[data-x]").forEach((line, number) => {
    const xs = line.dataset.x.split(" ").map(Number), ys = line.dataset.y.split(" ").map(Number);
    const near = xs.reduce((best, x, one) => (Math.abs(Math.log(x / Math.max(step, 0.5))) < Math.abs(Math.log(xs[best] / Math.max(step, 0.5))) ? one : best), 0);
    const close = Math.abs(Math.log2(xs[near] / Math.max(step, 0.5))) < 0.6;
    outputs[number].textContent = close ? ys[near].toLocaleString("en", { maximumSignificantDigits: 3 }) + svg.dataset.unit : "";
    if (close && place === null) place = line.points[near].x;
  });
  cursor.toggleAttribute("hidden", place === null);
  if (place !== null) for (const name of ["x1", "x2"]) cursor.setAttribute(name, place);
  at.textContent = `step ${step.toLocaleString("en")}`;
}

// ------------------------------------------------------------------ guesses at every step

// Filled in the background, a step at a time, whenever the text is new.
async function showGuesses() {
  const own = ++pass, [first, second] = state.texts, masks = state.result.answers.masked_lm ?? [];
  find("over").hidden = !masks.length;
  if (!masks.length) return;
  const cells = masks.slice(0, 3).map(() => STEPS.map((_, at) => make("td", { class: "guess", "data-at": at })));
  const head = make("tr", {}, make("th", { scope: "col" }, "step"), ...STEPS.map(({ step }, at) => make("th", { scope: "col", "data-at": at }, step.toLocaleString("en"))));
  const rows = cells.map((row, number) => make("tr", {}, make("th", { scope: "row" }, masks.length > 1 ? `mask ${number}` : "guess"), ...row));
  find("guesses").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  for (let at = LAST; at >= 0; at--) {
    const { masks: best } = await ask("guess", { first, second, checkpoint: at });
    if (own !== pass) return;
    cells.forEach((row, number) => {
      row[at].replaceChildren(shortly(best[number].text, 12), make("small", {}, percent(best[number].score)));
      row[at].style.setProperty("--weight", best[number].score);
      row[at].classList.toggle("now", at === state.checkpoint);
    });
  }
  sayStep();
}

// ------------------------------------------------------------------ words

const WIDE = 620, HIGH = 400, SVG = "http://www.w3.org/2000/svg";
let words = [], reach = 1;

async function chooseWords() {
  const own = state.result.tokens.filter((token) => !token.special && /[\p{L}\p{N}]/u.test(token.text)).map((token) => token.id);
  const ids = [...new Set(own)].slice(0, 10);
  if (!ids.length) { words = []; return; }
  ({ words, reach } = await ask("chart", { ids, top: 3 }));
  find("words").replaceChildren(...words.map((word) => {
    const text = document.createElementNS(SVG, "text");
    text.setAttribute("class", word.own ? "own" : "other");
    text.setAttribute("text-anchor", "middle");
    text.textContent = word.text;
    return text;
  }));
}

async function showWords() {
  const token = state.result.tokens[state.token], masked = token.id === page.tokenizer.mask_id;
  const guess = masked ? state.result.answers.masked_lm?.find(({ row }) => row === state.token)?.best[0] : null;
  const id = guess ? guess.id : token.id, name = guess ? guess.text : token.text;
  const { places: all, nearest: list } = await ask("near", { token: id, top: 6 });
  find("words").querySelectorAll("text").forEach((text, at) => {
    const [x, y] = all[at];
    text.setAttribute("x", (WIDE / 2 + (x / reach) * WIDE * 0.43).toFixed(1));
    text.setAttribute("y", (HIGH / 2 - (y / reach) * HIGH * 0.45).toFixed(1));
  });
  find("near-title").textContent = `Nearest to “${shortly(name)}”${guess ? ", the guess for the mask" : ""}`;
  find("near").replaceChildren(bars(list.map((one) => ({ name: one.text, value: one.score, shown: one.score.toFixed(2) }))));
}

async function showWordsPart() {
  const text = JSON.stringify(state.texts);
  if (text !== shown) {
    shown = text;
    await chooseWords();
  }
  await showWords();
}

async function showTraining() {
  const text = JSON.stringify(state.texts);
  if (text !== guessed) {
    guessed = text;
    showGuesses(); // in the background
  }
}

// ------------------------------------------------------------------ start

document.documentElement.classList.add("film");
state.checkpoint = LAST;
slider.max = slider.value = LAST;
slider.addEventListener("input", () => { stop(); goTo(Number(slider.value)); });
find("play").addEventListener("click", play);
find("ticks").replaceChildren(...STEPS.map(({ step }) => make("span", {}, step < 10000 ? String(step) : `${Math.round(step / 1000)}k`)));
if (page.film.left_out) find("film-note").textContent = `To keep the page small, ${page.film.left_out} of the first steps are left out.`;
sayStep();
