// Explorer, worker: the arithmetic of one layer for one piece, step by step.
"use strict";
Object.assign(ASKED, {
  // Query, keys, scores, weights and values of a head; then the feed-forward step of the piece.
  steps({ layer, head, row }) {
    const { run } = latest, { encoder, config } = model, { count } = run, { width, per_head: d, feedforward } = config;
    const seen = { head, row }, x = run.states[layer];
    const { states, map } = encoder.block(config.plan[layer], layer, x, count, () => false, x, seen);
    const { inner } = seen, part = (rows, token) => Float32Array.from(rows.subarray(token * inner + head * d, token * inner + (head + 1) * d));
    const own = (rows, size = width) => Float32Array.from(rows.subarray(row * size, (row + 1) * size));
    const tokens = [...Array(count).keys()];
    const weights = Array.from(map.subarray((head * count + row) * count, (head * count + row + 1) * count));
    const scale = 1 / Math.sqrt(d * config.scale_terms);
    return {
      layer, head, row, scale, divisor: d * config.scale_terms, relative: Boolean(config.distances),
      query: part(seen.q, row), keys: tokens.map((token) => part(seen.k, token)), values: tokens.map((token) => part(seen.v, token)),
      scores: Array.from(seen.scores), weights, mixed: part(seen.mixed, row),
      input: own(x), attended: own(seen.attended), middle: own(seen.middle), before: own(seen.before),
      wide: own(seen.wide, seen.wide.length / count).subarray(0, feedforward), bent: own(seen.bent, feedforward), fed: own(seen.fed), output: own(states),
    };
  },
});
