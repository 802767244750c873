// Explorer, worker: packed weights, and the one encoder loop that a Config describes.
"use strict";

// ------------------------------------------------------------------ weights

const HALVES = (() => { // every float16, as a number
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
    table[bits] = sign * (exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15));
  }
  return table;
})();

// A matrix that stays as small as it is stored: rows are expanded when they are needed.
class Matrix {
  constructor(buffer, entry) {
    [this.rows, this.columns] = entry.shape;
    const size = this.rows * this.columns;
    if (entry.kind === "int8") {
      this.group = entry.group;
      this.groups = Math.ceil(this.columns / entry.group);
      this.scales = new Float32Array(buffer, entry.scales, this.rows * this.groups);
      this.codes = new Int8Array(buffer, entry.at, size);
    } else if (entry.kind === "float16") this.halves = new Uint16Array(buffer, entry.at, size);
    else this.floats = new Float32Array(buffer, entry.at, size);
  }

  // One row into `out`, from `place` on, a number every `step`.
  expand(row, out, place = 0, step = 1) {
    const { columns, codes, halves, floats } = this, from = row * columns;
    let at = place;
    if (codes) {
      const { scales, group, groups } = this;
      for (let number = 0, column = from; number < groups; number++) {
        const scale = scales[row * groups + number], end = Math.min(from + columns, column + group);
        for (; column < end; column++, at += step) out[at] = codes[column] * scale;
      }
    } else if (halves) for (let column = from; column < from + columns; column++, at += step) out[at] = HALVES[halves[column]];
    else for (let column = from; column < from + columns; column++, at += step) out[at] = floats[column];
  }
}

class Weights {
  constructor(entries, buffer) {
    this.all = new Map(Object.entries(entries).map(([name, entry]) => [name, entry.alias
      ? [entry.alias] : entry.shape.length === 1 ? new Float32Array(buffer, entry.at, entry.shape[0]) : new Matrix(buffer, entry)]));
  }

  get(name) {
    const value = this.all.get(name);
    return Array.isArray(value) ? this.all.get(value[0]) : value;
  }
}

// ------------------------------------------------------------------ arithmetic on (T, D) rows

// x (count, in) times a matrix (out, in), plus a bias. Four rows of the matrix meet three rows of x
// at a time, so that what is loaded is used often; both lie in the order in which they are read.
function linear(x, count, matrix, bias) {
  const { rows, columns } = matrix, y = new Float64Array(count * rows), sums = new Float64Array(12);
  const threes = new Float64Array(Math.ceil(count / 3) * 3 * columns), fours = new Float64Array(4 * columns);
  for (let token = 0; token < count; token++) {
    const to = (token - (token % 3)) * columns + (token % 3), from = token * columns;
    for (let column = 0; column < columns; column++) threes[to + 3 * column] = x[from + column];
  }
  for (let row = 0; row < rows; row += 4) {
    const wide = Math.min(4, rows - row);
    for (let step = 0; step < wide; step++) matrix.expand(row + step, fours, step, 4);
    for (let token = 0; token < count; token += 3) {
      meet(threes, token * columns, fours, columns, sums);
      const tall = Math.min(3, count - token);
      for (let more = 0; more < tall; more++) {
        for (let step = 0; step < wide; step++) y[(token + more) * rows + row + step] = sums[4 * more + step] + (bias ? bias[row + step] : 0);
      }
    }
  }
  return y;
}

function meet(threes, place, fours, columns, sums) {
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0, u0 = 0, u1 = 0, u2 = 0, u3 = 0;
  for (let at = place, from = 0, end = 4 * columns; from < end; at += 3, from += 4) {
    const x = threes[at], y = threes[at + 1], z = threes[at + 2];
    const a = fours[from], b = fours[from + 1], c = fours[from + 2], d = fours[from + 3];
    s0 += x * a; s1 += x * b; s2 += x * c; s3 += x * d;
    t0 += y * a; t1 += y * b; t2 += y * c; t3 += y * d;
    u0 += z * a; u1 += z * b; u2 += z * c; u3 += z * d;
  }
  sums[0] = s0; sums[1] = s1; sums[2] = s2; sums[3] = s3;
  sums[4] = t0; sums[5] = t1; sums[6] = t2; sums[7] = t3;
  sums[8] = u0; sums[9] = u1; sums[10] = u2; sums[11] = u3;
}

function layerNorm(x, count, weight, bias, epsilon) {
  if (!weight) return x; // a model without this norm
  const width = weight.length, y = new Float64Array(x.length);
  for (let token = 0; token < count; token++) {
    const at = token * width;
    let mean = 0, variance = 0;
    for (let k = 0; k < width; k++) mean += x[at + k];
    mean /= width;
    for (let k = 0; k < width; k++) variance += (x[at + k] - mean) ** 2;
    const scale = 1 / Math.sqrt(variance / width + epsilon);
    for (let k = 0; k < width; k++) y[at + k] = (x[at + k] - mean) * scale * weight[k] + (bias ? bias[k] : 0);
  }
  return y;
}

// The error function to 1e-7 (Numerical Recipes' erfcc), which gelu is defined with.
function erf(x) {
  const z = Math.abs(x), t = 1 / (1 + 0.5 * z);
  const tail = t * Math.exp(-z * z - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (0.27886807
    + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
  return x >= 0 ? 1 - tail : tail - 1;
}

const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
const geluTanh = (x) => 0.5 * x * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
const silu = (x) => x / (1 + Math.exp(-x));
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const ACTIVATIONS = {
  gelu, gelu_python: gelu, gelu_new: geluTanh, gelu_fast: geluTanh, gelu_pytorch_tanh: geluTanh,
  silu, swish: silu, relu: (x) => Math.max(0, x), tanh: Math.tanh, sigmoid, linear: (x) => x,
};

function add(x, y) {
  const z = new Float64Array(x.length);
  for (let at = 0; at < x.length; at++) z[at] = x[at] + y[at];
  return z;
}

function softmax(row, start = 0, end = row.length) {
  let most = -Infinity, sum = 0;
  for (let at = start; at < end; at++) most = Math.max(most, row[at]);
  for (let at = start; at < end; at++) sum += row[at] = Math.exp(row[at] - most);
  for (let at = start; at < end; at++) row[at] /= sum;
  return row;
}

// ------------------------------------------------------------------ the encoder

class Encoder {
  constructor(config, weights) {
    Object.assign(this, { config, weights, act: ACTIVATIONS[config.activation], tables: new Map() });
  }

  linear(x, count, name) {
    return linear(x, count, this.weights.get(`${name}.weight`), this.weights.get(`${name}.bias`));
  }

  norm(x, count, name) {
    return layerNorm(x, count, this.weights.get(`${name}.weight`), this.weights.get(`${name}.bias`), this.config.norm_epsilon);
  }

  rows(name, numbers) {
    const table = this.weights.get(name), x = new Float64Array(numbers.length * table.columns);
    numbers.forEach((number, at) => table.expand(Math.min(number, table.rows - 1), x, at * table.columns));
    return x;
  }

  // Token, segment and position vectors, their sum, and the states that the first block reads.
  embed(tokens) {
    const { config } = this, home = "encoder.embedding", count = tokens.length;
    const parts = { token: this.rows(`${home}.token.weight`, tokens.map((token) => token.id)) };
    if (config.segments) parts.segment = this.rows(`${home}.marks.segment.weight`, tokens.map((token) => token.segment));
    if (config.positions) parts.position = this.rows(`${home}.marks.position.weight`, tokens.map((_, at) => at + config.position_offset));
    const sum = Object.values(parts).reduce(add);
    const norm = (x) => this.norm(x, count, `${home}.finish.norm`);
    const project = (x) => (config.project_embedding ? this.linear(x, count, `${home}.finish.projection`) : x);
    return { parts, sum, states: config.norm_after_projection ? norm(project(sum)) : project(norm(sum)) };
  }

  // Everything that views show: embeddings, the states of every depth, the weights of every head.
  // `off` holds heads as "layer.head" that add nothing; `skipped` holds layers that are left out.
  run(tokens, off = new Set(), skipped = new Set()) {
    const { config } = this, embedding = this.embed(tokens), count = tokens.length;
    const states = [embedding.states], maps = [];
    config.plan.forEach((number, depth) => {
      const x = states[depth];
      const gone = (head) => off.has(`${depth}.${head}`);
      const block = this.block(number, depth, x, count, gone);
      maps.push(block.map);
      states.push(skipped.has(depth) ? x : block.states);
    });
    const last = states[states.length - 1];
    return { embedding, states, maps, count, gone: (head) => off.has(`${config.plan.length - 1}.${head}`), last: this.norm(last, count, "encoder.norm") };
  }

  // One layer: attention and feed-forward, each with a residual path and a norm. With `queries`,
  // those rows ask and the rows of x answer. `seen` gets the steps in between, for `head` and `row`.
  block(number, depth, x, count, gone, queries = x, seen = {}) {
    const { config } = this, convolves = config.convolution && number === config.plan[0];
    const name = `encoder.blocks.${number}${convolves ? ".block" : ""}`;
    const read = (rows) => (config.pre_norm ? this.norm(rows, count, `${name}.attention_norm`) : rows);
    const { mixed, map } = this.attend(name, number, depth, read(x), queries === x ? null : read(queries), count, gone, seen);
    const attended = this.linear(mixed, count, `${name}.attention.output`);
    let y = add(queries, attended);
    if (!config.pre_norm) y = this.norm(y, count, `${name}.attention_norm`);
    const middle = y, before = config.pre_norm ? this.norm(y, count, `${name}.feedforward_norm`) : y;
    const fed = this.feedforward(name, before, count, seen);
    y = add(y, fed);
    if (!config.pre_norm) y = this.norm(y, count, `${name}.feedforward_norm`);
    Object.assign(seen, { attended, middle, before, fed });
    if (convolves) {
      const home = `encoder.blocks.${number}`, near = this.convolve(home, x, count);
      y = this.norm(add(near, y), count, `${home}.norm`);
    }
    return { states: y, map };
  }

  feedforward(name, x, count, seen = {}) {
    const wide = this.linear(x, count, `${name}.feedforward.up`), size = this.config.feedforward, { act } = this;
    const bent = this.config.gated ? new Float64Array(count * size) : wide.map(act);
    for (let token = 0; this.config.gated && token < count; token++) {
      for (let k = 0; k < size; k++) bent[token * size + k] = act(wide[2 * token * size + k]) * wide[(2 * token + 1) * size + k];
    }
    Object.assign(seen, { wide, bent });
    return this.linear(bent, count, `${name}.feedforward.down`);
  }

  convolve(name, x, count) {
    const { width, convolution: { size, groups, activation } } = this.config;
    const kernel = this.weights.get(`${name}.convolution.weight`), bias = this.weights.get(`${name}.convolution.bias`);
    const y = new Float64Array(count * width), inputs = width / groups, row = new Float64Array(inputs * size), act = ACTIVATIONS[activation];
    for (let out = 0; out < width; out++) {
      kernel.expand(out, row);
      const first = Math.floor(out / (width / groups)) * inputs;
      for (let token = 0; token < count; token++) {
        let sum = bias ? bias[out] : 0;
        for (let step = 0; step < size; step++) {
          const from = token + step - (size >> 1);
          if (from < 0 || from >= count) continue;
          for (let k = 0; k < inputs; k++) sum += row[k * size + step] * x[from * width + first + k];
        }
        y[token * width + out] = act(sum);
      }
    }
    return y;
  }

  // ------------------------------------------------ attention

  project(name, x, count) {
    const home = `${name}.attention.qkv`, matrix = this.weights.get(`${home}.weight`);
    if (!this.config.partial_bias) return linear(x, count, matrix, this.weights.get(`${home}.bias`));
    const inner = matrix.rows / 3, bias = new Float64Array(matrix.rows); // keys have no bias
    bias.set(this.weights.get(`${home}.query_bias`));
    bias.set(this.weights.get(`${home}.value_bias`), 2 * inner);
    return linear(x, count, matrix, bias);
  }

  attend(name, number, depth, x, queries, count, gone, seen = {}) {
    const { config } = this, heads = config.kept.length ? config.kept[number] : config.attention_heads;
    const d = config.per_head, inner = heads * d, scale = 1 / Math.sqrt(d * config.scale_terms);
    const joint = this.project(name, x, count), take = (rows, which) => {
      const out = new Float64Array(count * inner);
      for (let token = 0; token < count; token++) out.set(rows.subarray((token * 3 + which) * inner, (token * 3 + which + 1) * inner), token * inner);
      return out;
    };
    const q = take(queries ? this.project(name, queries, count) : joint, 0), k = take(joint, 1), v = take(joint, 2);
    if (config.bases) for (const rows of [q, k]) rotate(rows, count, heads, d, config.bases[depth]);
    const relative = config.distances ? this.distances(name, count, inner) : null;
    // A block that runs at several depths is one module: its window is that of its first depth.
    const window = config.windows.length ? config.windows[config.plan.indexOf(number)] : null;
    const map = new Float32Array(heads * count * count), mixed = new Float64Array(count * inner), row = new Float64Array(count);
    for (let head = 0; head < heads; head++) {
      const at = head * d;
      for (let i = 0; i < count; i++) {
        for (let j = 0; j < count; j++) {
          let sum = dot(q, i * inner + at, k, j * inner + at, d);
          if (relative) {
            const place = relative.place(i - j) * inner + at;
            if (relative.keys) sum += dot(q, i * inner + at, relative.keys, place, d);
            if (relative.queries) sum += dot(k, j * inner + at, relative.queries, place, d);
            if (relative.levels) sum += relative.levels[relative.place(i - j) * heads + head] / scale;
          }
          const hidden = (window !== null && Math.abs(i - j) > window) || (config.causal && j > i);
          row[j] = hidden ? -Infinity : sum * scale;
        }
        if (head === seen.head && i === seen.row) seen.scores = Float64Array.from(row);
        softmax(row);
        map.set(row, (head * count + i) * count);
        if (gone(head)) continue;
        for (let j = 0; j < count; j++) {
          const weight = row[j];
          if (weight) for (let step = 0; step < d; step++) mixed[i * inner + at + step] += weight * v[j * inner + at + step];
        }
      }
    }
    Object.assign(seen, { q, k, v, mixed, inner });
    return { mixed, map };
  }

  // DeBERTa's vectors of relative distance, projected for a layer; they depend on no text.
  distances(name, count, inner) {
    const { distances, signal } = this.config, middle = (distances.length - 1) / 2;
    const rows = [...new Set(distances.slice(middle - count + 1, middle + count))];
    const known = this.tables.get(name);
    if (known && rows.every((one) => known.at.has(one))) return known;
    const at = new Map(rows.map((one, number) => [one, number])), place = (distance) => at.get(distances[middle + distance]);
    if (!signal.span) { // MPNet's biases: a number for each head, the same in all layers
      this.tables.set(name, { at, place, keys: null, queries: null, levels: this.rows("encoder.signals.0.table.weight", rows) });
      return this.tables.get(name);
    }
    const vectors = this.norm(this.rows("encoder.signals.0.table.weight", rows), rows.length, "encoder.signals.0.norm");
    const table = { at, place, keys: null, queries: null };
    if (signal.shared) {
      const joint = this.project(name, vectors, rows.length);
      const take = (which) => Float32Array.from({ length: rows.length * inner }, (_, at) => joint[(Math.floor(at / inner) * 3 + which) * inner + (at % inner)]);
      if (signal.keys) table.keys = take(1);
      if (signal.queries) table.queries = take(0);
    } else {
      const map = (part) => Float32Array.from(this.linear(vectors, rows.length, `${name}.attention.${part}`));
      if (signal.keys) table.keys = map("position_key");
      if (signal.queries) table.queries = map("position_query");
    }
    this.tables.set(name, table);
    return table;
  }
}

function dot(a, p, b, q, size) {
  let sum = 0;
  for (let k = 0; k < size; k++) sum += a[p + k] * b[q + k];
  return sum;
}

// Turn each pair (k, k + d/2) of a head's coordinates by the angle of its place.
function rotate(rows, count, heads, d, base) {
  const half = d / 2;
  for (let token = 0; token < count; token++) {
    for (let k = 0; k < half; k++) {
      const angle = token / base ** ((2 * k) / d), cosine = Math.cos(angle), sine = Math.sin(angle);
      for (let head = 0; head < heads; head++) {
        const at = (token * heads + head) * d + k, a = rows[at], b = rows[at + half];
        rows[at] = a * cosine - b * sine;
        rows[at + half] = b * cosine + a * sine;
      }
    }
  }
}
