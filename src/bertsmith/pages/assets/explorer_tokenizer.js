// Explorer, worker: text → tokens, step by step as the `tokenizers` library does it.
"use strict";

// ------------------------------------------------------------------ pre-tokenizers

// Bytes spelled as visible characters, as GPT-2's authors did it.
const BYTES = (() => {
  const table = [];
  let more = 0;
  for (let byte = 0; byte < 256; byte++) {
    const visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    table.push(String.fromCodePoint(visible ? byte : 256 + more++));
  }
  return table;
})();
const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

function byWords(piece) {
  const done = [];
  let at = 0;
  for (const [match] of textOf(piece).matchAll(WORDS)) {
    const length = [...match].length;
    done.push(part(piece, at, at + length));
    at += length;
  }
  return done;
}

// Cut before and after characters of a kind; those of another kind are dropped.
function cut(piece, alone, dropped) {
  const done = [];
  let start = 0;
  const end = (at) => { if (at > start) done.push(part(piece, start, at)); };
  piece.chars.forEach((char, at) => {
    if (dropped(char)) { end(at); start = at + 1; }
    else if (alone(char)) { end(at); done.push(part(piece, at, at + 1)); start = at + 1; }
  });
  end(piece.chars.length);
  return done;
}

const never = () => false;

function preTokenized(step, pieces) {
  if (!step) return pieces;
  switch (step.type) {
    case "Sequence": return step.pretokenizers.reduce((done, one) => preTokenized(one, done), pieces);
    case "BertPreTokenizer": return pieces.flatMap((piece) => cut(piece, isPunctuation, isSpace));
    case "WhitespaceSplit": return pieces.flatMap((piece) => cut(piece, never, isSpace));
    case "Punctuation": return pieces.flatMap((piece) => cut(piece, isPunctuation, never));
    case "ByteLevel": return pieces.flatMap((piece) => {
      const start = step.add_prefix_space && piece.chars[0] !== " ";
      const spaced = start ? aligned([" ", ...piece.chars], [piece.from[0], ...piece.from], [piece.to[0], ...piece.to]) : piece;
      const words = step.use_regex === false ? [spaced] : byWords(spaced);
      return words.map((word) => mapped(word, (char) => Array.from(new TextEncoder().encode(char), (byte) => BYTES[byte])));
    });
    case "Metaspace": return pieces.flatMap((piece) => {
      const sign = step.replacement;
      const marked = mapped(piece, (char) => [char === " " ? sign : char]);
      const first = step.prepend_scheme === "always" || (step.prepend_scheme === "first" && piece.from[0] === 0);
      if (first && marked.chars[0] !== sign) {
        marked.chars.unshift(sign); marked.from.unshift(marked.from[0]); marked.to.unshift(marked.to[0]);
      }
      if (step.split === false) return [marked];
      const done = [];
      let start = 0;
      for (let at = 1; at <= marked.chars.length; at++) {
        if (at === marked.chars.length || marked.chars[at] === sign) { done.push(part(marked, start, at)); start = at; }
      }
      return done;
    });
    default: throw new Error(`the pre-tokenizer ${step.type} is not known`);
  }
}

// ------------------------------------------------------------------ models: words → pieces

// Each returns [id, first character, end] for the pieces of a word.
class WordPiece {
  constructor(model, ids) { Object.assign(this, { ids, model, unknown: ids.get(model.unk_token) }); }

  split(chars) {
    const { ids, model, unknown } = this, all = [[unknown, 0, chars.length]];
    if (chars.length > model.max_input_chars_per_word) return all;
    const done = [];
    for (let start = 0; start < chars.length;) {
      let end = chars.length, id;
      for (; end > start; end--) {
        id = ids.get((start ? model.continuing_subword_prefix : "") + chars.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (end === start) return all;
      done.push([id, start, end]);
      start = end;
    }
    return done;
  }
}

const spelled = (ids, char) => {
  const bytes = Array.from(new TextEncoder().encode(char), (byte) => ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`));
  return bytes.includes(undefined) ? null : bytes;
};

class Bpe {
  constructor(model, ids) {
    Object.assign(this, { ids, model, ranks: new Map(), unknown: ids.get(model.unk_token) });
    model.merges.forEach(([left, right], rank) => this.ranks.set(`${left} ${right}`, rank));
  }

  split(chars) {
    const { ids, ranks, model } = this, whole = ids.get(chars.join(""));
    if (model.ignore_merges && whole !== undefined) return [[whole, 0, chars.length]];
    const word = []; // [text, first, end, id]
    chars.forEach((char, at) => {
      const id = ids.get(char);
      if (id !== undefined) { word.push([char, at, at + 1, id]); return; }
      const bytes = model.byte_fallback ? spelled(ids, char) : null;
      if (bytes) bytes.forEach((byte) => word.push(["", at, at + 1, byte]));
      else if (this.unknown !== undefined) {
        const last = word[word.length - 1];
        if (model.fuse_unk && last && last[3] === this.unknown) last[2] = at + 1;
        else word.push(["", at, at + 1, this.unknown]);
      }
    });
    for (;;) {
      let best = Infinity, place = -1;
      for (let at = 0; at + 1 < word.length; at++) {
        const rank = ranks.get(`${word[at][0]} ${word[at + 1][0]}`);
        if (rank < best) { best = rank; place = at; }
      }
      if (place < 0) break;
      const [left, right] = [word[place], word[place + 1]], text = left[0] + right[0];
      word.splice(place, 2, [text, left[1], right[2], ids.get(text)]);
    }
    return word.map(([, start, end, id]) => [id, start, end]);
  }
}

class Unigram {
  constructor(model, ids) {
    Object.assign(this, { ids, model, scores: model.scores, unknown: model.unk_id });
    this.longest = Math.max(...model.pieces.map((piece) => [...piece].length));
    this.own = new Map(model.pieces.map((piece, id) => [piece, id]));
    this.penalty = model.scores.reduce((least, score) => Math.min(least, score), Infinity) - 10;
  }

  // The likeliest split (Viterbi); what no piece covers is unknown, and joined with its like.
  split(chars) {
    const size = chars.length, best = new Array(size + 1).fill(null);
    best[0] = { score: 0 };
    for (let start = 0; start < size; start++) {
      let text = "", single = false;
      const reach = (end, score, id) => {
        const total = best[start].score + score;
        if (best[end] === null || total > best[end].score) best[end] = { score: total, start, id };
      };
      for (let end = start + 1; end <= Math.min(size, start + this.longest); end++) {
        text += chars[end - 1];
        const id = this.own.get(text);
        if (id === undefined) continue;
        reach(end, this.scores[id], id);
        if (end === start + 1) single = true;
      }
      if (!single) reach(start + 1, this.penalty, this.unknown);
    }
    const word = [];
    for (let end = size; end > 0; end = best[end].start) word.unshift([best[end].id, best[end].start, end]);
    const done = [];
    for (const [id, start, end] of word) {
      const last = done[done.length - 1];
      if (id === this.unknown && last && last[0] === id) last[2] = end;
      else done.push([id, start, end]);
    }
    if (!this.model.byte_fallback) return done;
    return done.flatMap(([id, start, end]) => {
      if (id !== this.unknown) return [[id, start, end]];
      const bytes = spelled(this.ids, chars.slice(start, end).join(""));
      return bytes ? bytes.map((byte) => [byte, start, end]) : [[id, start, end]];
    });
  }
}

// ------------------------------------------------------------------ all of it

class Tokenizer {
  constructor(settings) {
    this.settings = settings;
    this.ids = new Map();
    settings.tokens.forEach((token, id) => { if (token !== null) this.ids.set(token, id); });
    this.model = new { WordPiece, BPE: Bpe, Unigram }[settings.model.type](settings.model, this.ids);
    this.special = new Set(settings.special);
    this.added = settings.added.map((token) => ({ ...token, id: this.ids.get(token.content), chars: [...token.content] }));
  }

  // Cut out added tokens: [piece, id or null]. The longest of those that begin first counts.
  extract(piece, tokens) {
    const done = [], { chars } = piece;
    let start = 0;
    const plain = (end) => { if (end > start) done.push([part(piece, start, end), null]); };
    const word = (at) => at >= 0 && at < chars.length && /^[\p{L}\p{N}\p{M}_]$/u.test(chars[at]);
    for (let at = 0; at < chars.length;) {
      const fits = tokens.filter((token) => token.chars.length && token.chars.every((char, step) => chars[at + step] === char)
        && !(token.single_word && (word(at - 1) || word(at + token.chars.length))));
      if (!fits.length) { at++; continue; }
      const token = fits.reduce((a, b) => (b.chars.length > a.chars.length ? b : a));
      let first = at, end = at + token.chars.length;
      while (token.lstrip && first > start && isSpace(chars[first - 1])) first--;
      while (token.rstrip && end < chars.length && isSpace(chars[end])) end++;
      plain(first);
      done.push([part(piece, first, end), token.id]);
      start = at = end;
    }
    plain(chars.length);
    return done;
  }

  // Tokens of one text with the places of their characters: [{ id, start, end, word }].
  encode(text) {
    const chars = [...text], { normalizer, pre_tokenizer: splitter } = this.settings;
    const whole = aligned(chars, chars.map((_, at) => at), chars.map((_, at) => at + 1));
    const done = [];
    let word = 0;
    const add = (id, start, end) => {
      while (start < end && isSpace(chars[start])) start++;
      while (start < end && isSpace(chars[end - 1])) end--;
      done.push({ id, start, end, word });
    };
    const later = this.added.filter((token) => token.normalized).map((token) => {
      const own = normalized(normalizer, aligned(token.chars, token.chars.map(() => 0), token.chars.map(() => 0)));
      return { ...token, chars: own.chars };
    });
    const parts = this.extract(whole, this.added.filter((token) => !token.normalized)).flatMap(([piece, id]) => (
      id === null ? this.extract(normalized(normalizer, piece), later) : [[piece, id]]));
    for (const [piece, id] of parts) {
      if (!piece.chars.length) continue;
      if (id !== null) { add(id, piece.from[0], piece.to[piece.to.length - 1]); word++; continue; }
      for (const own of preTokenized(splitter, [piece])) {
        for (const [token, start, end] of this.model.split(own.chars)) add(token, own.from[start], own.to[end - 1]);
        word++;
      }
    }
    return done;
  }

  // Special tokens around one text or two, as the template says; at most `longest` tokens.
  build(first, second, longest) {
    const template = this.settings.templates[second ? 1 : 0], texts = [first, second || []];
    let spare = longest - template.filter(([source]) => source === null).length;
    const whole = texts[0].length + texts[1].length;
    while (texts[0].length + texts[1].length > Math.max(0, spare)) {
      const longer = second && texts[1].length >= texts[0].length ? 1 : 0;
      texts[longer] = texts[longer].slice(0, -1);
    }
    const tokens = template.flatMap(([source, id, segment]) => (
      source === null ? [{ id, start: 0, end: 0, word: null, source, segment }]
        : texts[source].map((token) => ({ ...token, source, segment }))));
    return { tokens, left_out: whole - texts[0].length - texts[1].length };
  }

  // A token for a person to read: a space that belongs to it is shown as ␣.
  shown(id) {
    const token = this.settings.tokens[id] ?? `#${id}`;
    if (this.settings.kind === "bytes" && !this.special.has(id)) {
      const bytes = [...token].map((char) => BYTES.indexOf(char));
      if (!bytes.includes(-1)) return new TextDecoder().decode(Uint8Array.from(bytes)).replace(/^ /, "␣").replaceAll("\n", "⏎");
    }
    return token.replace(/^▁/, "␣");
  }
}
