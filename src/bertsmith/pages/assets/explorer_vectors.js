// Explorer, worker of a film: the weights of every step, and the vectors of words in two dimensions.
"use strict";

// Each set of weights is stored as its difference from the one before, byte by byte, compressed.
async function unrolled({ sizes, bytes: size }, stored) {
  const buffers = [];
  let at = 0;
  for (const length of sizes) {
    const part = new Blob([stored.subarray(at, at + length)]).stream().pipeThrough(new DecompressionStream("deflate"));
    const bytes = new Uint8Array(await new Response(part).arrayBuffer()), before = buffers[buffers.length - 1];
    if (bytes.length !== size) throw new Error("the weights of a step are damaged");
    if (before) for (let place = 0; place < size; place++) bytes[place] += before[place];
    buffers.push(bytes);
    at += length;
  }
  return buffers.map((bytes) => bytes.buffer);
}

const POWER_STEPS = 60;
let chart = null; // which words are in the picture, and the two directions that it shows

// The vector of a token at the current step, of length 1.
function unit(id) {
  const vector = model.encoder.rows("encoder.embedding.token.weight", [id]), size = Math.sqrt(dot(vector, 0, vector, 0, vector.length)) || 1;
  return vector.map((value) => value / size);
}

// The tokens whose vectors have the most similar direction.
function nearest(id, top) {
  const table = model.weights.get("encoder.embedding.token.weight"), own = unit(id), row = new Float64Array(table.columns);
  const { tokens } = model.settings.tokenizer, best = [];
  for (let other = 0; other < tokens.length; other++) {
    if (other === id || model.tokenizer.special.has(other)) continue;
    table.expand(other, row);
    const score = dot(own, 0, row, 0, row.length) / (Math.sqrt(dot(row, 0, row, 0, row.length)) || 1);
    if (best.length === top && score <= best[top - 1].score) continue;
    best.push({ id: other, score });
    best.sort((a, b) => b.score - a.score);
    best.length = Math.min(best.length, top);
  }
  return best.map((one) => ({ ...one, text: model.tokenizer.shown(one.id) }));
}

function centred(vectors) {
  const mean = vectors.reduce(add).map((value) => value / vectors.length);
  return vectors.map((vector) => vector.map((value, at) => value - mean[at]));
}

// The two directions in which the vectors differ most, by power iteration.
function directions(vectors) {
  const found = [];
  for (let which = 0; which < 2; which++) {
    let axis = Float64Array.from(vectors[0], (_, at) => Math.sin(at + which + 1));
    for (let step = 0; step < POWER_STEPS; step++) {
      let next = new Float64Array(axis.length);
      for (const vector of vectors) {
        const share = dot(vector, 0, axis, 0, axis.length);
        for (let at = 0; at < next.length; at++) next[at] += share * vector[at];
      }
      for (const other of found) {
        const share = dot(next, 0, other, 0, next.length);
        next = next.map((value, at) => value - share * other[at]);
      }
      const size = Math.sqrt(dot(next, 0, next, 0, next.length)) || 1;
      axis = next.map((value) => value / size);
    }
    found.push(axis);
  }
  return found;
}

const places = (ids) => centred(ids.map(unit)).map((vector) => chart.axes.map((axis) => dot(vector, 0, axis, 0, axis.length)));

Object.assign(ASKED, {
  // Words of the text, and those nearest to them at the last step: what the picture shows.
  chart({ ids, top }) {
    return within(model.sets.length - 1, () => {
      const near = new Map(ids.map((id) => [id, nearest(id, top).map((one) => one.id)]));
      const all = [...new Set([...ids, ...[...near.values()].flat()])];
      chart = { ids: all, axes: directions(centred(all.map(unit))) };
      const reach = Math.max(1e-9, ...places(all).flat().map(Math.abs));
      return { words: all.map((id) => ({ id, text: model.tokenizer.shown(id), own: ids.includes(id) })), reach };
    });
  },
  near({ token, top }) {
    return { places: chart ? places(chart.ids) : [], nearest: nearest(token, top) };
  },
  // The best guesses for the masks of a text at another step.
  guess({ first, second, checkpoint }) {
    return within(checkpoint, () => {
      const { tokenizer, settings } = model;
      const { tokens } = tokenizer.build(tokenizer.encode(first), second === null ? null : tokenizer.encode(second), settings.longest);
      const run = model.encoder.run(tokens);
      return { masks: answersOf(model, run, tokens, first, second).masked_lm.map(({ best }) => best[0]) };
    });
  },
});
