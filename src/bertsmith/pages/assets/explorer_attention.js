// Explorer, page: the attention of all heads as a grid, and of one head as lines or a matrix.
"use strict";
const ROW = 26; // pixels between pieces in the view of lines
const headsOf = (layer) => (page.config.kept.length ? page.config.kept[page.config.plan[layer]] : page.config.attention_heads);

function weightsOf(layer, head) {
  const count = state.result.tokens.length;
  return state.result.maps[layer].subarray(head * count * count, (head + 1) * count * count);
}

function showGrid() {
  const grid = find("grid"), count = state.result.tokens.length, most = Math.max(...Array.from({ length: LAYERS }, (_, layer) => headsOf(layer)), 1);
  grid.style.setProperty("--heads", most);
  const focused = document.activeElement?.closest?.("#grid") ? document.activeElement.dataset.head : null;
  grid.replaceChildren(...Array.from({ length: LAYERS }, (_, layer) => {
    const gone = state.skipped.has(layer);
    const row = make("div", { role: "row", class: gone ? "row gone" : "row" }, make("span", { role: "rowheader" }, String(layer)));
    for (let head = 0; head < headsOf(layer); head++) {
      const key = `${layer}.${head}`, weights = weightsOf(layer, head), chosen = layer === state.layer && head === state.head;
      const canvas = thumbnail(weights, count);
      const off = state.off.has(key) || gone;
      row.append(make("button", {
        type: "button", role: "gridcell", class: `${off ? "off" : ""}`, "aria-selected": String(chosen), "data-head": key, tabindex: chosen ? "0" : "-1",
        "aria-label": `Layer ${layer}, head ${head}${off ? ", switched off" : ""}`, title: `Layer ${layer}, head ${head}`, onclick: () => chooseHead(layer, head),
      }, canvas));
    }
    return row;
  }));
  if (focused) grid.querySelector(`[data-head="${focused}"]`)?.focus();
}

// A head's weights in at most 64 rows and columns: of a block of weights the largest is shown.
function thumbnail(weights, count) {
  const size = Math.min(64, count), cells = new Float32Array(size * size);
  for (let i = 0; i < count; i++) {
    const row = Math.floor((i * size) / count) * size;
    for (let j = 0; j < count; j++) {
      const at = row + Math.floor((j * size) / count), weight = weights[i * count + j];
      if (weight > cells[at]) cells[at] = weight;
    }
  }
  return pixels(make("canvas", { "aria-hidden": "true" }), size, size, (at) => Math.sqrt(cells[at]));
}

function chooseHead(layer, head) {
  Object.assign(state, { layer, head });
  for (const one of find("grid").querySelectorAll("button")) {
    const own = one.dataset.head === `${layer}.${head}`;
    one.setAttribute("aria-selected", String(own));
    one.tabIndex = own ? 0 : -1;
  }
  showHead();
  showSteps();
  showOverview();
  remember();
}

// ------------------------------------------------------------------ one head

function showHead() {
  const { layer, head } = state, target = find("head"), key = `${layer}.${head}`;
  if (!LAYERS) { target.replaceChildren(make("p", { class: "soft" }, "This model has no layers: it is a table of vectors.")); return; }
  const views = make("span", { class: "buttons", role: "group", "aria-label": "View" }, ...["lines", "matrix"].map((view) => button(view, () => { state.view = view; showHead(); remember(); }, { "aria-pressed": String(state.view === view) })));
  const off = button(state.off.has(key) ? "Switch this head on" : "Switch this head off", () => toggle(state.off, key, `head ${layer}.${head}`), { id: "head-off", "aria-pressed": String(state.off.has(key)) });
  const skip = button(state.skipped.has(layer) ? `Switch layer ${layer} on` : `Switch layer ${layer} off`, () => toggle(state.skipped, layer, `layer ${layer}`), { id: "layer-off", "aria-pressed": String(state.skipped.has(layer)) });
  const stage = make("div", { id: "stage", class: state.view });
  target.replaceChildren(make("h3", {}, `Layer ${layer}, head ${head}`), make("div", { class: "tools" }, views, off, skip, button("See the arithmetic", () => goToPart("steps-part"))), make("p", { id: "looks", class: "soft", role: "status" }), stage);
  if (state.view === "lines") buildLines(stage);
  else buildMatrix(stage);
  drawHead();
}

function buildLines(stage) {
  const { tokens } = state.result;
  const side = (name) => make("div", { class: name }, ...tokens.map((token, row) => make("button", {
    type: "button", "data-row": row, "aria-pressed": String(row === state.token), tabindex: "-1", onclick: () => chooseToken(row),
    onmouseenter: () => drawHead(row), onmouseleave: () => drawHead(),
  }, token.text || "␣")));
  stage.append(side("asks"), make("canvas", { "aria-hidden": "true" }), side("asked"));
}

function buildMatrix(stage) {
  const { tokens } = state.result, canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": "Attention of every token to every other; arrow keys move" });
  let row = state.token ?? 0, column = row;
  const say = () => {
    const weight = weightsOf(state.layer, state.head)[row * tokens.length + column];
    find("looks").textContent = `${tokens[row].text} attends to ${tokens[column].text}: ${percent(weight)}`;
    drawHead(row, column);
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect(), gap = matrixGap(box.width), cell = (box.width - gap) / tokens.length;
    [column, row] = [(event.clientX - box.left - gap) / cell, (event.clientY - box.top - gap) / cell].map((place) => Math.max(0, Math.min(tokens.length - 1, Math.floor(place))));
    say();
  };
  canvas.addEventListener("pointermove", at);
  canvas.addEventListener("click", (event) => { at(event); state.cell = column; chooseToken(row); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    [row, column] = [row + step[0], column + step[1]].map((place) => Math.max(0, Math.min(tokens.length - 1, place)));
    say();
  });
  stage.append(canvas);
}

const matrixGap = (width) => Math.min(90, Math.round(width * 0.24));

// Lines or cells; those of one piece stand out.
function drawHead(chosen = state.token, column = null) {
  const stage = find("stage");
  if (!stage || !state.result) return;
  const { tokens } = state.result, count = tokens.length, weights = weightsOf(state.layer, state.head), canvas = stage.querySelector("canvas");
  if (state.view === "lines") drawLines(canvas, count, weights, chosen);
  else drawMatrix(canvas, tokens, weights, chosen, column);
  if (chosen !== null && column === null) {
    const own = [...weights.subarray(chosen * count, (chosen + 1) * count)].map((weight, at) => [weight, at]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    find("looks").textContent = `${tokens[chosen].text} attends to ${own.map(([weight, at]) => `${tokens[at].text} (${percent(weight)})`).join(", ")}`;
  }
}

function drawLines(canvas, count, weights, chosen) {
  const width = canvas.clientWidth || 160, height = count * ROW;
  canvas.style.width = "";
  const drawing = surface(canvas, Math.max(40, width), height), middle = width / 2;
  canvas.style.width = "";
  const line = (i, j, weight, strong) => {
    drawing.strokeStyle = rgba(strong ? ink.down : ink.up, strong ? 0.25 + 0.75 * weight : 0.6 * weight);
    drawing.lineWidth = strong ? 1 + 4 * weight : 0.5 + 2.5 * weight;
    drawing.beginPath();
    drawing.moveTo(2, (i + 0.5) * ROW);
    drawing.bezierCurveTo(middle, (i + 0.5) * ROW, middle, (j + 0.5) * ROW, width - 2, (j + 0.5) * ROW);
    drawing.stroke();
  };
  for (const strong of [false, true]) {
    for (let i = 0; i < count; i++) {
      if ((i === chosen) !== strong) continue;
      for (let j = 0; j < count; j++) if (weights[i * count + j] > 0.03) line(i, j, weights[i * count + j], strong);
    }
  }
  const asked = find("stage").querySelectorAll(".asked button");
  asked.forEach((one, j) => one.style.setProperty("--weight", chosen === null ? 0 : weights[chosen * count + j]));
}

function drawMatrix(canvas, tokens, weights, chosen, column) {
  const count = tokens.length, width = Math.min(find("stage").clientWidth || 300, 90 + count * 30), gap = matrixGap(width), cell = (width - gap) / count;
  const drawing = surface(canvas, width, width);
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < count; j++) {
      drawing.fillStyle = rgba(i === chosen ? ink.down : ink.up, 0.04 + 0.96 * Math.sqrt(weights[i * count + j]));
      drawing.fillRect(gap + j * cell, gap + i * cell, Math.max(0.5, cell - 1), Math.max(0.5, cell - 1));
    }
  }
  if (cell < 9) return; // no room for names
  drawing.font = `${Math.min(13, cell)}px system-ui, sans-serif`;
  drawing.textBaseline = "middle";
  tokens.forEach((token, at) => {
    drawing.fillStyle = rgba(at === chosen ? ink.text : ink.soft, 1);
    drawing.textAlign = "right";
    drawing.fillText(shortly(token.text, 10), gap - 6, gap + (at + 0.5) * cell);
    drawing.save();
    drawing.fillStyle = rgba(at === column ? ink.text : ink.soft, 1);
    drawing.translate(gap + (at + 0.5) * cell, gap - 6);
    drawing.rotate(-Math.PI / 2);
    drawing.textAlign = "left";
    drawing.fillText(shortly(token.text, 10), 0, 0);
    drawing.restore();
  });
}
