// Explorer, worker: a text's characters with their places, and the normalizers that change them.
"use strict";

// A text is an array of characters (code points), each with its place in the text as a person
// wrote it: normalizers may drop, add and change characters, and the places stay.
const aligned = (chars, from, to) => ({ chars, from, to });
const textOf = (piece) => piece.chars.join("");

function part(piece, start, end) {
  return aligned(piece.chars.slice(start, end), piece.from.slice(start, end), piece.to.slice(start, end));
}

// Replace every character by the characters of a string; each keeps the place of its origin.
function mapped(piece, change) {
  const done = aligned([], [], []);
  piece.chars.forEach((char, at) => {
    for (const one of change(char)) {
      done.chars.push(one);
      done.from.push(piece.from[at]);
      done.to.push(piece.to[at]);
    }
  });
  return done;
}

const SPACE = /^\p{White_Space}$/u;
const MARK = /^\p{M}$/u;
const isSpace = (char) => SPACE.test(char);
// Unicode's punctuation, and all of ASCII that is neither letter, digit nor space.
const isPunctuation = (char) => /^[!-/:-@[-`{-~]$|^\p{P}$/u.test(char);

function isChinese(char) {
  const code = char.codePointAt(0);
  return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf)
    || (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b73f)
    || (code >= 0x2b740 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf)
    || (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

// ------------------------------------------------------------------ normalizers

// Unicode's forms: marks and conjoining syllables belong to the character before them.
function composed(piece, form) {
  const groups = [];
  piece.chars.forEach((char, at) => {
    const joins = MARK.test(char) || /^[\u1160-\u11ff\ud7b0-\ud7ff]$/.test(char);
    if (joins && groups.length) groups[groups.length - 1].push(at);
    else groups.push([at]);
  });
  const done = aligned([], [], []);
  const add = (text, group) => [...text].forEach((char, step) => {
    const origin = group[Math.min(step, group.length - 1)];
    done.chars.push(char);
    done.from.push(piece.from[origin]);
    done.to.push(piece.to[origin]);
  });
  for (const group of groups) add(group.map((at) => piece.chars[at]).join("").normalize(form), group);
  const whole = textOf(piece).normalize(form);
  if (done.chars.join("") === whole) return done;
  done.chars = []; done.from = []; done.to = []; // rare: characters that join in other ways
  add(whole, [...piece.chars.keys()]);
  return done;
}

function filtered(piece, keep) {
  return mapped(piece, (char) => (keep(char) ? [char] : []));
}

// What BERT's authors call cleaning: no control characters, every kind of space is a space.
function cleaned(piece) {
  const kept = filtered(piece, (char) => {
    if (char === "\t" || char === "\n" || char === "\r") return true;
    return char !== "\0" && char !== "\ufffd" && !/^[\p{Cc}\p{Cf}\p{Co}]$/u.test(char);
  });
  return mapped(kept, (char) => [isSpace(char) ? " " : char]);
}

function replaced(piece, pattern, content) {
  const text = textOf(piece), starts = [];
  let unit = 0;
  for (const char of piece.chars) { starts.push(unit); unit += char.length; }
  starts.push(unit);
  const place = new Map(starts.map((start, at) => [start, at]));
  const expression = "String" in pattern ? null : new RegExp(unicodeSpaces(pattern.Regex), "gu");
  const found = [];
  if (expression) for (const match of text.matchAll(expression)) found.push([match.index, match.index + match[0].length]);
  else if (pattern.String) {
    for (let at = text.indexOf(pattern.String); at >= 0; at = text.indexOf(pattern.String, at + pattern.String.length)) found.push([at, at + pattern.String.length]);
  }
  const done = aligned([], [], []);
  let next = 0;
  const copy = (end) => {
    for (; next < end; next++) { done.chars.push(piece.chars[next]); done.from.push(piece.from[next]); done.to.push(piece.to[next]); }
  };
  for (const [start, end] of found) {
    const first = place.get(start), last = place.get(end) - 1;
    copy(first);
    for (const char of content) { done.chars.push(char); done.from.push(piece.from[first] ?? 0); done.to.push(piece.to[Math.max(first, last)] ?? 0); }
    next = last + 1;
  }
  copy(piece.chars.length);
  return done;
}

// In the library's expressions \s is Unicode's white space; in JavaScript's it is nearly that.
const unicodeSpaces = (source) => source.replaceAll("\\s", "\\p{White_Space}").replaceAll("\\S", "\\P{White_Space}");

function stripped(piece, left, right) {
  let start = 0, end = piece.chars.length;
  while (left && start < end && isSpace(piece.chars[start])) start++;
  while (right && start < end && isSpace(piece.chars[end - 1])) end--;
  return part(piece, start, end);
}

// SentencePiece's compiled rules: a double-array trie of byte strings, and their replacements.
class Charsmap {
  constructor(base64) {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const view = new DataView(bytes.buffer), size = view.getUint32(0, true);
    this.units = new Uint32Array(size / 4);
    for (let at = 0; at < this.units.length; at++) this.units[at] = view.getUint32(4 + 4 * at, true);
    this.texts = bytes.subarray(4 + size);
    this.segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
  }

  // The replacement of the shortest prefix that has one, as the library does it; null: none.
  replacement(text) {
    const { units } = this, offset = (unit) => (unit >>> 10) << ((unit & 512) >>> 6);
    let at = offset(units[0]);
    for (const byte of new TextEncoder().encode(text)) {
      at ^= byte;
      const unit = units[at];
      if (unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return null;
      at ^= offset(unit);
      if ((unit >>> 8) & 1) {
        const start = units[at] & 0x7fffffff;
        let end = start;
        while (end < this.texts.length && this.texts[end]) end++;
        return new TextDecoder().decode(this.texts.subarray(start, end));
      }
    }
    return null;
  }

  apply(piece) {
    const done = aligned([], [], []);
    let at = 0;
    const add = (text, first, last) => {
      for (const char of text) { done.chars.push(char); done.from.push(piece.from[first]); done.to.push(piece.to[last]); }
    };
    for (const { segment } of this.segmenter.segment(textOf(piece))) {
      const chars = [...segment];
      const short = new TextEncoder().encode(segment).length < 6;
      const whole = short ? this.replacement(segment) : null;
      if (whole !== null) add(whole, at, at + chars.length - 1);
      else chars.forEach((char, step) => add(this.replacement(char) ?? char, at + step, at + step));
      at += chars.length;
    }
    return done;
  }
}

const charsmaps = new Map();

function normalized(step, piece) {
  if (!step || !piece.chars.length) return piece;
  switch (step.type) {
    case "Sequence": return step.normalizers.reduce((done, one) => normalized(one, done), piece);
    case "BertNormalizer": {
      let done = step.clean_text ? cleaned(piece) : piece;
      if (step.handle_chinese_chars) done = mapped(done, (char) => (isChinese(char) ? [" ", char, " "] : [char]));
      if (step.strip_accents ?? step.lowercase) done = filtered(composed(done, "NFD"), (char) => !/^\p{Mn}$/u.test(char));
      return step.lowercase ? mapped(done, (char) => char.toLowerCase()) : done;
    }
    case "Lowercase": return mapped(piece, (char) => char.toLowerCase());
    case "NFC": case "NFD": case "NFKC": case "NFKD": return composed(piece, step.type);
    case "StripAccents": return filtered(piece, (char) => !MARK.test(char));
    case "Strip": return stripped(piece, step.strip_left, step.strip_right);
    case "Replace": return replaced(piece, step.pattern, step.content);
    case "Prepend": {
      const start = part(piece, 0, 1);
      const added = mapped(start, (char) => step.prepend + char);
      const rest = part(piece, 1, piece.chars.length);
      return aligned([...added.chars, ...rest.chars], [...added.from, ...rest.from], [...added.to, ...rest.to]);
    }
    case "Precompiled": {
      const key = step.precompiled_charsmap;
      if (!charsmaps.has(key)) charsmaps.set(key, new Charsmap(key));
      return charsmaps.get(key).apply(piece);
    }
    default: throw new Error(`the normalizer ${step.type} is not known`);
  }
}
