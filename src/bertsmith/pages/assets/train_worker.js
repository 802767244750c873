// Training page, worker: a BERT of two layers that learns the masks of a text, by the explorer's encoder.
"use strict";
const SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], UNKNOWN = 1, CLS = 2, SEP = 3, MASK = 4;
const EPSILON = 1e-12, LONGEST = 32;

// Numbers from 0 to 1 that are the same for the same seed (mulberry32).
function randomNumbers(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// ------------------------------------------------------------------ text to numbers

const wordsIn = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().match(/[\p{L}\p{N}]+|[^\s\p{L}\p{N}]/gu) ?? [];

// WordPiece: begin with letters, and join the most frequent pair until the vocabulary is full.
function learnVocabulary(text, size) {
  const counts = new Map();
  for (const word of wordsIn(text)) counts.set(word, (counts.get(word) ?? 0) + 1);
  const spelled = [...counts].map(([word, count]) => ({ count, parts: [...word].map((letter, at) => (at ? "##" : "") + letter) }));
  const tokens = new Set([...SPECIAL, ...[...new Set(spelled.flatMap((word) => word.parts))].sort()]);
  while (tokens.size < size) {
    const pairs = new Map();
    for (const { count, parts } of spelled) {
      for (let at = 1; at < parts.length; at++) { const pair = `${parts[at - 1]} ${parts[at]}`; pairs.set(pair, (pairs.get(pair) ?? 0) + count); }
    }
    if (!pairs.size) break;
    const [best] = [...pairs].reduce((most, one) => (one[1] > most[1] ? one : most));
    const [left, right] = best.split(" "), joined = left + right.replace(/^##/, "");
    tokens.add(joined);
    for (const word of spelled) {
      for (let at = 1; at < word.parts.length; at++) if (word.parts[at - 1] === left && word.parts[at] === right) word.parts.splice(at - 1, 2, joined);
    }
  }
  return [...tokens];
}

function encodeWith(ids, text) {
  const done = [CLS];
  text.split("[MASK]").forEach((part, number) => {
    if (number) done.push(MASK);
    for (const word of wordsIn(part)) {
      const pieces = [];
      for (let start = 0, end = word.length; start < word.length; end = word.length) {
        while (end > start && !ids.has((start ? "##" : "") + word.slice(start, end))) end--;
        if (end === start) { pieces.splice(0, Infinity, UNKNOWN); break; }
        pieces.push(ids.get((start ? "##" : "") + word.slice(start, end)));
        start = end;
      }
      done.push(...pieces);
    }
  });
  return [...done.slice(0, LONGEST - 1), SEP];
}

// ------------------------------------------------------------------ layers, forwards and backwards

// A matrix as `linear` reads it, with its gradient and Adam's running means.
class Weight {
  constructor(rows, columns, value) {
    [this.rows, this.columns] = [rows, columns];
    this.data = Float64Array.from({ length: rows * columns }, value);
    [this.gradient, this.mean, this.square] = [0, 0, 0].map(() => new Float64Array(rows * columns));
  }

  expand(row, out, place = 0, step = 1) {
    for (let column = 0, from = row * this.columns, at = place; column < this.columns; column++, at += step) out[at] = this.data[from + column];
  }
}

// The gradient of linear's input; those of the matrix and the bias are added to theirs.
function linearBack(dy, x, count, weight, bias) {
  const { rows, columns, data, gradient } = weight, dx = new Float64Array(count * columns);
  for (let token = 0; token < count; token++) {
    const at = token * columns;
    for (let row = 0; row < rows; row++) {
      const g = dy[token * rows + row], from = row * columns;
      bias.gradient[row] += g;
      for (let column = 0; column < columns; column++) {
        dx[at + column] += g * data[from + column];
        gradient[from + column] += g * x[at + column];
      }
    }
  }
  return dx;
}

function normBack(dy, x, count, weight, bias) {
  const width = weight.columns, dx = new Float64Array(x.length);
  for (let token = 0; token < count; token++) {
    const at = token * width;
    let mean = 0, variance = 0, sum = 0, product = 0;
    for (let k = 0; k < width; k++) mean += x[at + k] / width;
    for (let k = 0; k < width; k++) variance += (x[at + k] - mean) ** 2 / width;
    const scale = 1 / Math.sqrt(variance + EPSILON);
    for (let k = 0; k < width; k++) {
      const normal = (x[at + k] - mean) * scale, g = dy[at + k] * weight.data[k];
      weight.gradient[k] += dy[at + k] * normal;
      bias.gradient[k] += dy[at + k];
      sum += g / width;
      product += g * normal / width;
    }
    for (let k = 0; k < width; k++) dx[at + k] = scale * (dy[at + k] * weight.data[k] - sum - (x[at + k] - mean) * scale * product);
  }
  return dx;
}

const geluBack = (dy, x) => dy.map((g, at) => g * (0.5 * (1 + erf(x[at] * Math.SQRT1_2)) + x[at] * Math.exp(-x[at] * x[at] / 2) / Math.sqrt(2 * Math.PI)));

// ------------------------------------------------------------------ the model

class TrainedBert {
  constructor(tokens, { width = 64, layers = 2, heads = 2, seed = 0 } = {}) {
    Object.assign(this, { tokens, width, layers, heads, steps: 0, ids: new Map(tokens.map((token, id) => [token, id])), random: randomNumbers(seed) });
    this.weights = {};
    const normal = () => 0.02 * Math.sqrt(-2 * Math.log(1 - this.random())) * Math.cos(2 * Math.PI * this.random());
    const table = (name, rows, columns, value = normal) => { this.weights[name] = new Weight(rows, columns, value); };
    const layer = (name, inputs, outputs) => {
      const value = () => (2 * this.random() - 1) / Math.sqrt(inputs);
      table(`${name}.weight`, outputs, inputs, value);
      table(`${name}.bias`, 1, outputs, value);
    };
    const norm = (name) => { table(`${name}.weight`, 1, width, () => 1); table(`${name}.bias`, 1, width, () => 0); };
    table("token.weight", tokens.length, width);
    table("position.weight", LONGEST, width);
    norm("embedding_norm");
    for (let block = 0; block < layers; block++) {
      for (const part of ["query", "key", "value", "output"]) layer(`blocks.${block}.attention.${part}`, width, width);
      norm(`blocks.${block}.attention_norm`);
      layer(`blocks.${block}.up`, width, 4 * width);
      layer(`blocks.${block}.down`, 4 * width, width);
      norm(`blocks.${block}.feedforward_norm`);
    }
    layer("transform", width, width);
    norm("transform_norm");
    table("vocabulary.bias", 1, tokens.length, () => 0);
  }

  // A layer, and what takes gradients back through it.
  linear(x, count, name, back, weight = this.weights[`${name}.weight`]) {
    const bias = this.weights[`${name}.bias`];
    back.push((dy) => linearBack(dy, x, count, weight, bias));
    return linear(x, count, weight, bias.data);
  }

  norm(x, count, name, back) {
    const weight = this.weights[`${name}.weight`], bias = this.weights[`${name}.bias`];
    back.push((dy) => normBack(dy, x, count, weight, bias));
    return layerNorm(x, count, weight.data, bias.data, EPSILON);
  }

  gelu(x, back) {
    back.push((dy) => geluBack(dy, x));
    return x.map(gelu);
  }

  attention(x, count, name, back) {
    const { width, heads } = this, size = width / heads, root = Math.sqrt(size), inner = [[], [], []];
    const [q, k, v] = ["query", "key", "value"].map((part, at) => this.linear(x, count, `${name}.${part}`, inner[at]));
    const maps = [], mixed = new Float64Array(count * width);
    for (let head = 0; head < heads; head++) {
      const weights = new Float64Array(count * count);
      for (let i = 0; i < count; i++) {
        for (let j = 0; j < count; j++) for (let d = head * size; d < (head + 1) * size; d++) weights[i * count + j] += q[i * width + d] * k[j * width + d] / root;
        softmax(weights, i * count, (i + 1) * count);
        for (let j = 0; j < count; j++) for (let d = head * size; d < (head + 1) * size; d++) mixed[i * width + d] += weights[i * count + j] * v[j * width + d];
      }
      maps.push(weights);
    }
    back.push((dy) => {
      const [dq, dk, dv] = [0, 0, 0].map(() => new Float64Array(count * width));
      maps.forEach((weights, head) => {
        for (let i = 0; i < count; i++) {
          const dw = new Float64Array(count);
          let sum = 0;
          for (let j = 0; j < count; j++) {
            const weight = weights[i * count + j];
            for (let d = head * size; d < (head + 1) * size; d++) {
              dw[j] += dy[i * width + d] * v[j * width + d];
              dv[j * width + d] += weight * dy[i * width + d];
            }
            sum += dw[j] * weight;
          }
          for (let j = 0; j < count; j++) {
            const ds = weights[i * count + j] * (dw[j] - sum) / root;
            for (let d = head * size; d < (head + 1) * size; d++) {
              dq[i * width + d] += ds * k[j * width + d];
              dk[j * width + d] += ds * q[i * width + d];
            }
          }
        }
      });
      return [dq, dk, dv].map((one, at) => inner[at][0](one)).reduce(add);
    });
    return this.linear(mixed, count, `${name}.output`, back);
  }

  // The states of a text, and the steps that take their gradient back to the embeddings.
  read(ids) {
    const { width, weights } = this, count = ids.length, x = new Float64Array(count * width), back = [];
    ids.forEach((id, at) => {
      for (let k = 0; k < width; k++) x[at * width + k] = weights["token.weight"].data[id * width + k] + weights["position.weight"].data[at * width + k];
    });
    back.push((dx) => ids.forEach((id, at) => {
      for (let k = 0; k < width; k++) {
        weights["token.weight"].gradient[id * width + k] += dx[at * width + k];
        weights["position.weight"].gradient[at * width + k] += dx[at * width + k];
      }
    }));
    let states = this.norm(x, count, "embedding_norm", back);
    // A part beside its shortcut: the gradient goes both ways, and is added.
    const beside = (input, part) => {
      const inner = [], output = part(input, inner);
      back.push((dy) => add(dy, inner.reduceRight((g, step) => step(g), dy)));
      return add(input, output);
    };
    for (let block = 0; block < this.layers; block++) {
      const name = `blocks.${block}`;
      states = this.norm(beside(states, (input, inner) => this.attention(input, count, `${name}.attention`, inner)), count, `${name}.attention_norm`, back);
      states = this.norm(beside(states, (input, inner) => this.linear(
        this.gelu(this.linear(input, count, `${name}.up`, inner), inner), count, `${name}.down`, inner)), count, `${name}.feedforward_norm`, back);
    }
    return { states, back };
  }

  // Scores of all tokens at some rows of the states.
  guess(states, rows, back) {
    const { width } = this, picked = new Float64Array(rows.length * width);
    rows.forEach((row, at) => picked.set(states.subarray(row * width, (row + 1) * width), at * width));
    back.push((dy) => {
      const dx = new Float64Array(states.length);
      rows.forEach((row, at) => dx.set(dy.subarray(at * width, (at + 1) * width), row * width));
      return dx;
    });
    const x = this.norm(this.gelu(this.linear(picked, rows.length, "transform", back), back), rows.length, "transform_norm", back);
    return this.linear(x, rows.length, "vocabulary", back, this.weights["token.weight"]);
  }

  // The sum of the losses at masks, and how many are right; with a scale, gradients are added up.
  loss({ ids, targets }, scale = 0) {
    const rows = targets.flatMap((target, row) => (target < 0 ? [] : [row])), { states, back } = this.read(ids), size = this.tokens.length;
    const chances = this.guess(states, rows, back);
    let loss = 0, right = 0;
    rows.forEach((row, at) => {
      softmax(chances, at * size, (at + 1) * size);
      const own = chances.subarray(at * size, (at + 1) * size), chance = own[targets[row]];
      loss -= Math.log(chance);
      right += own.every((other) => other <= chance);
      own[targets[row]] -= 1; // the gradient of the scores
    });
    if (scale) back.reduceRight((gradient, step) => step(gradient), chances.map((value) => value * scale));
    return { loss, right, masks: rows.length };
  }

  // One update by Adam from the mean gradient of a batch, whose length is at most 1.
  update(batch, rate) {
    const all = Object.values(this.weights), masks = batch.reduce((sum, one) => sum + one.targets.filter((target) => target >= 0).length, 0);
    for (const one of all) one.gradient.fill(0);
    const sums = batch.map((one) => this.loss(one, 1 / masks)).reduce((a, b) => ({ loss: a.loss + b.loss, right: a.right + b.right }));
    const length = Math.sqrt(all.reduce((sum, one) => sum + one.gradient.reduce((part, g) => part + g * g, 0), 0));
    this.steps++;
    const shrink = Math.min(1, 1 / length), size = rate * Math.sqrt(1 - 0.98 ** this.steps) / (1 - 0.9 ** this.steps);
    for (const { data, gradient, mean, square } of all) {
      for (let at = 0; at < data.length; at++) {
        const g = gradient[at] * shrink;
        mean[at] = 0.9 * mean[at] + 0.1 * g;
        square[at] = 0.98 * square[at] + 0.02 * g * g;
        data[at] -= size * mean[at] / (Math.sqrt(square[at]) + 1e-8);
      }
    }
    return { loss: sums.loss / masks, accuracy: sums.right / masks };
  }

  // Of the tokens 15%, at least one: 80% become [MASK], 10% another token, 10% stay.
  masked(ids, random) {
    const places = ids.map((_, at) => at).slice(1, -1), targets = ids.map(() => -1), seen = [...ids];
    const count = Math.max(1, Math.round(0.15 * places.length));
    for (let n = 0; n < count; n++) {
      const [place] = places.splice(Math.floor(random() * places.length), 1), chance = random();
      targets[place] = ids[place];
      if (chance < 0.8) seen[place] = MASK;
      else if (chance < 0.9) seen[place] = SPECIAL.length + Math.floor(random() * (this.tokens.length - SPECIAL.length));
    }
    return { ids: seen, targets };
  }
}

// ------------------------------------------------------------------ messages of the page

let model = null, train = [], held = [];

const ANSWERS = {
  open: () => ({}), close: () => ({}),
  begin({ text, size = 600, ...sizes }) {
    model = new TrainedBert(learnVocabulary(text, size), sizes);
    const sentences = [...new Set(text.split(/(?<=[.!?])\s+|\n+/))].map((one) => encodeWith(model.ids, one)).filter((ids) => ids.length > 4);
    const random = randomNumbers(1);
    held = sentences.filter((_, at) => at % 10 === 5).slice(0, 40).map((ids) => model.masked(ids, random));
    train = sentences.filter((_, at) => at % 10 !== 5);
    if (!train.length || !held.length) return { error: "The text is too short: at least ten sentences of three words are needed." };
    const parameters = Object.values(model.weights).reduce((sum, one) => sum + one.data.length, 0);
    return { tokens: model.tokens.length, sentences: train.length, held: held.length, parameters };
  },
  learn({ steps, rate = 0.003, size = 8 }) {
    let done = {};
    for (let step = 0; step < steps; step++) {
      const batch = Array.from({ length: size }, () => model.masked(train[Math.floor(model.random() * train.length)], model.random));
      done = model.update(batch, rate * Math.min(1, (model.steps + 1) / 20)); // small steps first
    }
    return { step: model.steps, ...done };
  },
  score() {
    const sums = held.map((one) => model.loss(one)).reduce((a, b) => ({ loss: a.loss + b.loss, right: a.right + b.right, masks: a.masks + b.masks }));
    return { loss: sums.loss / sums.masks, accuracy: sums.right / sums.masks };
  },
  fill({ text }) {
    const ids = encodeWith(model.ids, text), row = ids.indexOf(MASK);
    if (row < 0) return { guesses: [] };
    const chances = softmax(model.guess(model.read(ids).states, [row], []));
    const best = [...chances.keys()].sort((a, b) => chances[b] - chances[a]).slice(0, 5);
    return { guesses: best.map((id) => ({ token: model.tokens[id], score: chances[id] })) };
  },
  // For the test: the loss and all gradients of a batch, with given weights.
  gradients({ tokens, sizes, weights, batch }) {
    model = new TrainedBert(tokens, sizes);
    for (const [name, values] of Object.entries(weights)) model.weights[name].data.set(values);
    const masks = batch.reduce((sum, one) => sum + one.targets.filter((target) => target >= 0).length, 0);
    const loss = batch.reduce((sum, one) => sum + model.loss(one, 1 / masks).loss, 0) / masks;
    return { loss, gradients: Object.fromEntries(Object.entries(model.weights).map(([name, one]) => [name, [...one.gradient]])) };
  },
};

self.onmessage = ({ data }) => {
  try {
    self.postMessage({ id: data.id, ...ANSWERS[data.ask](data) });
  } catch (error) {
    self.postMessage({ id: data.id, error: error.message });
  }
};
