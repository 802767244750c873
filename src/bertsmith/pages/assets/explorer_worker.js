// Explorer, worker: heads on the encoder's states, what they answer, and the messages of the page.
"use strict";

// ------------------------------------------------------------------ heads

// Pick rows of the states, transform them, map them to outputs: (rows, outputs).
function applyHead(model, name, hidden, rows) {
  const { encoder, config } = model, head = config.heads[name], home = `heads.${name}`, { width } = config;
  const states = headInput(encoder, head, home, hidden);
  let picked;
  if (head.pool === "mean") {
    picked = new Float64Array(width);
    for (let at = 0; at < states.length; at++) picked[at % width] += states[at] / hidden.count;
    rows = [0];
  } else {
    rows = head.pool === "first" ? [0] : rows ?? [...Array(hidden.count).keys()];
    picked = new Float64Array(rows.length * width);
    rows.forEach((row, at) => picked.set(states.subarray(row * width, (row + 1) * width), at * width));
  }
  const count = rows.length;
  if (head.anchored) picked = encoder.norm(picked, count, `${home}.transform.norm`);
  if (head.dense) picked = encoder.linear(picked, count, `${home}.transform.dense`).map(ACTIVATIONS[head.activation]);
  if (head.norm && !head.anchored) picked = encoder.norm(picked, count, `${home}.transform.norm`);
  const outputs = head.outputs || picked.length / count;
  const all = head.outputs ? encoder.linear(picked, count, `${home}.output`) : picked;
  return rows.map((_, at) => all.subarray(at * outputs, (at + 1) * outputs));
}

// The states that a head works on; two heads of DeBERTa's read more than the last ones.
function headInput(encoder, head, home, hidden) {
  const { width, plan } = encoder.config, { count } = hidden;
  if (head.anchored) return hidden.last.map((value, at) => value + hidden.last[at % width]);
  if (!head.enhanced) return hidden.last;
  const { before } = hidden, places = [...Array(count).keys()], depth = plan.length - 1;
  let x = add(before, encoder.rows(`${home}.positions.weight`, places));
  for (let turn = 0; turn < 2; turn++) x = encoder.block(plan[depth], depth, before, count, hidden.gone, x).states;
  return x;
}

// The states after a depth, as heads read them: the last, or those in between (the logit lens).
function hiddenAt(model, run, depth) {
  const last = depth === run.states.length - 1 ? run.last : model.encoder.norm(run.states[depth], run.count, "encoder.norm");
  return { last, before: run.states[Math.max(0, depth - 1)], count: run.count, gone: run.gone };
}

// ------------------------------------------------------------------ answers

// The likeliest tokens; a table may have more rows than there are tokens, those are nobody's.
function guesses(model, logits, top, always = null) {
  const size = model.tokenizer.settings.tokens.length;
  const chances = softmax(Float64Array.from(logits.subarray(0, size)));
  const best = [];
  for (let id = 0; id < size; id++) {
    if (best.length === top && chances[id] <= chances[best[top - 1]]) continue;
    let place = best.length;
    while (place > 0 && chances[id] > chances[best[place - 1]]) place--;
    best.splice(place, 0, id);
    if (best.length > top) best.pop();
  }
  const one = (id) => ({ id, text: model.tokenizer.shown(id), score: chances[id] });
  return { best: best.map(one), own: always === null ? null : { ...one(always), rank: 1 + chances.reduce((sum, chance) => sum + (chance > chances[always]), 0) } };
}

function answersOf(model, run, tokens, first, second) {
  const { heads } = model.config, hidden = hiddenAt(model, run, run.states.length - 1), done = {};
  const has = (name) => name in heads;
  if (has("masked_lm")) {
    const rows = tokens.flatMap((token, row) => (token.id === model.settings.tokenizer.mask_id ? [row] : []));
    const logits = rows.length ? applyHead(model, "masked_lm", hidden, rows) : [];
    done.masked_lm = rows.map((row, at) => ({ row, ...guesses(model, logits[at], 10) }));
  }
  for (const name of ["next_sentence", "sentence_order"]) {
    if (has(name) && second !== null && !done.follows) done.follows = { head: name, scores: [...softmax(Float64Array.from(applyHead(model, name, hidden)[0]))] };
  }
  if (has("classify")) {
    const logits = Float64Array.from(applyHead(model, "classify", hidden)[0]), kind = model.settings.activation;
    done.classify = [...(kind === "softmax" ? softmax(logits) : kind === "sigmoid" ? logits.map(sigmoid) : logits)];
  }
  if (has("tag")) done.tag = tagged(model, tokens, applyHead(model, "tag", hidden), first);
  if (has("answer") && second !== null) done.answer = answered(tokens, applyHead(model, "answer", hidden), second);
  if (has("replaced")) done.replaced = applyHead(model, "replaced", hidden).map((row) => sigmoid(row[0]));
  return done;
}

const BLANK = /^[\p{White_Space}\p{Cc}\p{Cf}]$/u;

// A span without the blanks around it, and with the accents that follow it.
function trimmed(chars, start, end) {
  while (start < end && (BLANK.test(chars[start]) || MARK.test(chars[start]))) start++;
  while (start < end && BLANK.test(chars[end - 1])) end--;
  while (start < end && end < chars.length && MARK.test(chars[end])) end++;
  return [start, end];
}

// The first token of every word and the word's characters; punctuation at its ends stands alone.
function wordsOf(tokens, chars) {
  const groups = [];
  tokens.forEach((token, row) => {
    if (token.source !== 0) return;
    const last = groups[groups.length - 1];
    if (last && tokens[last[0]].word === token.word) last.push(row);
    else groups.push([row]);
  });
  const shown = (row) => chars.slice(tokens[row].start, tokens[row].end);
  const wordless = (row) => shown(row).every((char) => BLANK.test(char) || /^[\p{P}\p{S}]$/u.test(char));
  const done = [];
  let end = 0;
  for (const group of groups) {
    const spoken = group.filter((row) => !wordless(row));
    const [low, high] = spoken.length ? [spoken[0], spoken[spoken.length - 1]] : [-1, -1];
    const parts = [[group[0]]];
    for (let at = 1; at < group.length; at++) {
      const [before, row] = [group[at - 1], group[at]];
      const within = (low <= before && row <= high) || shown(before).every((char) => BLANK.test(char)) || tokens[row].start < tokens[before].end;
      if (within) parts[parts.length - 1].push(row);
      else parts.push([row]);
    }
    for (const part of parts) {
      const [from, to] = trimmed(chars, Math.max(end, tokens[part[0]].start), tokens[part[part.length - 1]].end);
      if (from < to) { done.push({ row: part[0], start: from, end: to }); end = to; }
    }
  }
  return done;
}

// Every word with its likeliest label, and the entities that labels such as B-PER and I-PER spell.
function tagged(model, tokens, logits, text) {
  const chars = [...text], { labels } = model.settings;
  const words = wordsOf(tokens, chars).map((word) => {
    const chances = softmax(Float64Array.from(logits[word.row])), best = chances.indexOf(Math.max(...chances));
    return { ...word, label: labels[best], score: chances[best] };
  });
  if (!labels.some((label) => /^[BISU]-/.test(label))) return { words, entities: null };
  const entities = [];
  let open = null;
  for (const word of [...words, { label: "O" }]) {
    const [mark, kind] = word.label.includes("-") ? [word.label.split("-", 1)[0], word.label.slice(word.label.indexOf("-") + 1)] : ["O", ""];
    const goesOn = open && kind === open.label && "IEL".includes(mark);
    if (open && !goesOn) { entities.push(open); open = null; }
    if (!kind) continue;
    if (!open) open = { label: kind, start: word.start, end: word.end, scores: [] };
    open.end = word.end;
    open.scores.push(word.score);
    if ("ELSU".includes(mark)) { entities.push(open); open = null; }
  }
  return { words, entities: entities.map(({ scores, ...one }) => ({ ...one, score: scores.reduce((a, b) => a + b, 0) / scores.length })) };
}

// The likeliest parts of the second text, at most 30 tokens each, and how likely there is none.
function answered(tokens, logits, passage) {
  const chars = [...passage], rows = tokens.flatMap((token, row) => (token.source === 1 ? [row] : []));
  const spans = [];
  for (const start of rows) {
    for (let end = start; end < start + 30 && tokens[end]?.source === 1; end++) spans.push([logits[start][0] + logits[end][1], start, end]);
  }
  spans.sort((a, b) => b[0] - a[0]);
  const most = spans.length ? spans[0][0] : 0, total = spans.reduce((sum, [score]) => sum + Math.exp(score - most), 0);
  const found = new Map();
  for (const [score, first, last] of spans.slice(0, 40)) {
    const [start, end] = trimmed(chars, tokens[first].start, tokens[last].end);
    if (start < end && !found.has(`${start}-${end}`)) found.set(`${start}-${end}`, { start, end, text: chars.slice(start, end).join(""), score: Math.exp(score - most) / total });
  }
  const nothing = logits[0][0] + logits[0][1];
  return { answers: [...found.values()].slice(0, 5), none: spans.length ? 1 / (1 + Math.exp(most - nothing)) : 1 };
}

// Which other pieces of the text have the most similar states?
function alike(states, tokens, row, width) {
  const size = (at) => Math.sqrt(dot(states, at * width, states, at * width, width)) || 1;
  return tokens.flatMap((token, at) => (at === row || model.tokenizer.special.has(token.id) ? []
    : [{ text: model.tokenizer.shown(token.id), score: dot(states, row * width, states, at * width, width) / (size(row) * size(at)) }]))
    .sort((a, b) => b.score - a.score);
}

// One vector for a text, as bertsmith's `embed` makes it.
function vectorOf(model, text, off, skipped) {
  const { sentence } = model.settings, { width } = model.config;
  const whole = sentence.lowercase ? (sentence.prompt + text).toLowerCase() : sentence.prompt + text;
  const { tokens } = model.tokenizer.build(model.tokenizer.encode(whole), null, Math.min(model.settings.longest, sentence.max_length ?? Infinity));
  const { last } = model.encoder.run(tokens, off, skipped);
  const vector = new Float64Array(width);
  for (let at = 0; at < (sentence.pool === "first" ? width : last.length); at++) vector[at % width] += last[at] / (sentence.pool === "first" ? 1 : tokens.length);
  return vector;
}

// ------------------------------------------------------------------ messages

let model = null, latest = null;
let bytes = null;

// Compute with one of the sets of weights: a film has one for each step, a model has one.
function use(number) {
  if (number === model.used) return;
  model.used = number;
  model.weights = model.sets[number];
  model.encoder = new Encoder(model.config, model.weights);
}

function within(number, job) {
  const before = model.used;
  use(number);
  try { return job(); } finally { use(before); }
}

const ASKED = {
  // The settings come first, then the weights in parts of base64, then they are put together.
  open({ settings }) {
    model = { settings, config: settings.config };
    bytes = new Uint8Array(settings.bytes);
    return {};
  },
  part({ text, at }) {
    const binary = atob(text);
    for (let byte = 0; byte < binary.length; byte++) bytes[at + byte] = binary.charCodeAt(byte);
    return {};
  },
  async close() {
    const { settings } = model;
    model.tokenizer = new Tokenizer(settings.tokenizer);
    const buffers = settings.film ? await unrolled(settings.film, bytes) : [bytes.buffer];
    model.sets = buffers.map((buffer) => new Weights(settings.weights, buffer));
    use(model.sets.length - 1);
    bytes = null;
    settings.weights = null;
    return {};
  },
  encode({ texts }) {
    return { texts: texts.map((text) => model.tokenizer.encode(text)) };
  },
  run({ first, second = null, off = [], skipped = [], checkpoint = model.used }) {
    use(checkpoint);
    const { tokenizer, encoder, settings } = model, start = performance.now();
    const pair = second === null ? null : tokenizer.encode(second);
    const { tokens, left_out } = tokenizer.build(tokenizer.encode(first), pair, settings.longest);
    const run = encoder.run(tokens, new Set(off), new Set(skipped));
    latest = { run, tokens };
    const answers = answersOf(model, run, tokens, first, second);
    const { parts, sum, states } = run.embedding;
    const floats = (rows) => Float32Array.from(rows);
    const embedding = Object.fromEntries(Object.entries({ ...parts, sum, states }).map(([name, rows]) => [name, floats(rows)]));
    return {
      tokens: tokens.map((token) => ({ ...token, text: tokenizer.shown(token.id), special: tokenizer.special.has(token.id), unknown: token.id === settings.tokenizer.unk_id })),
      left_out, embedding, maps: run.maps, answers, milliseconds: performance.now() - start,
    };
  },
  // One token at every depth: its state, and what the masked-LM head would guess there.
  lens({ row, top = 5 }) {
    const { run, tokens } = latest, { width } = model.config;
    const depths = run.states.map((states, depth) => {
      const state = Float32Array.from(states.subarray(row * width, (row + 1) * width));
      if (!("masked_lm" in model.config.heads)) return { state, alike: alike(states, tokens, row, width).slice(0, top) };
      const hidden = hiddenAt(model, run, depth);
      return { state, hidden };
    });
    const enhanced = model.config.heads.masked_lm?.enhanced;
    if ("masked_lm" in model.config.heads && !enhanced) {
      // One product for all depths: every row of the table is expanded once.
      const stacked = new Float64Array(depths.length * width);
      depths.forEach(({ hidden }, depth) => stacked.set(hidden.last.subarray(row * width, (row + 1) * width), depth * width));
      const logits = applyHead(model, "masked_lm", { last: stacked, count: depths.length });
      depths.forEach((depth, at) => Object.assign(depth, guesses(model, logits[at], top, tokens[row].id)));
    } else if (enhanced) {
      for (const depth of depths) Object.assign(depth, guesses(model, applyHead(model, "masked_lm", depth.hidden, [row])[0], top, tokens[row].id));
    }
    return { row, depths: depths.map(({ hidden, ...depth }) => depth) };
  },
  compare({ first, second, off = [], skipped = [] }) {
    const [a, b] = [first, second].map((text) => vectorOf(model, text, new Set(off), new Set(skipped))), size = a.length;
    const length = (x) => Math.sqrt(dot(x, 0, x, 0, size)) || 1;
    return { similarity: dot(a, 0, b, 0, size) / (length(a) * length(b)), vectors: [Float32Array.from(a), Float32Array.from(b)] };
  },
  // All outputs of a head, for tests and for those who want the numbers.
  logits({ head, first, second = null, rows = null, ids = null, checkpoint = model.used }) {
    use(checkpoint);
    const { tokenizer, settings } = model;
    const tokens = ids ? ids.map((id) => ({ id, segment: 0, source: 0 }))
      : tokenizer.build(tokenizer.encode(first), second === null ? null : tokenizer.encode(second), settings.longest).tokens;
    const run = model.encoder.run(tokens);
    if (head === "states") return { logits: [Float32Array.from(run.last)] };
    return { logits: applyHead(model, head, hiddenAt(model, run, run.states.length - 1), rows).map((row) => Float32Array.from(row)) };
  },
};

self.onmessage = async ({ data }) => {
  try {
    self.postMessage({ id: data.id, ...await ASKED[data.ask](data) });
  } catch (error) {
    self.postMessage({ id: data.id, error: `${error.message}` });
  }
};
