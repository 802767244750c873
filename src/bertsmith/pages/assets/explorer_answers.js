// Explorer, page: a panel for each thing that the model can do, with the former answer beside it.
"use strict";

// Rows with a bar each; `was` marks where the bar ended before the last change.
function bars(rows, choose = null) {
  const list = make("ul", { class: "rows" });
  rows.forEach((row, number) => {
    const bar = make("i"), whole = make("span", { class: "bar", "aria-hidden": "true" }, bar);
    bar.style.width = `${Math.max(0, Math.min(1, row.value)) * 100}%`;
    if (row.was !== null && row.was !== undefined) {
      const mark = make("b");
      mark.style.left = `${Math.max(0, Math.min(1, row.was)) * 100}%`;
      whole.append(mark);
    }
    const name = choose ? button(row.name, () => choose(number), { title: row.title || "" }) : make("span", { class: "name" }, row.name);
    const was = row.was === null || row.was === undefined ? (row.before ?? "") : `was ${percent(row.was)}`;
    list.append(make("li", { class: row.mine ? "mine" : null }, name, whole, make("span", { class: "value" }, row.shown ?? percent(row.value), was ? make("small", {}, was) : null)));
  });
  return list;
}

const ANSWERS = {
  classify(scores, former) {
    const rows = page.labels.map((name, at) => ({ name, value: scores[at], was: former ? former[at] : null }));
    if (page.activation === "raw") return [make("p", { class: "big" }, scores.map((value) => value.toPrecision(4)).join(", "), make("small", {}, former ? ` was ${former.map((value) => value.toPrecision(4)).join(", ")}` : ""))];
    rows.sort((a, b) => b.value - a.value);
    const decided = page.decision && rows.length === 2 && page.labels.includes(page.decision.label)
      ? (scores[page.labels.indexOf(page.decision.label)] > page.decision.value ? page.decision.label : page.labels.find((name) => name !== page.decision.label)) : rows[0].name;
    return [make("p", { class: "big" }, page.activation === "sigmoid" ? rows.filter((row) => row.value > (page.thresholds?.[row.name] ?? 0.5)).map((row) => row.name).join(", ") || "no label" : decided), bars(rows.slice(0, 12)),
      note("The state of the text goes through one more small layer, trained on labelled examples, that gives every label a score.")];
  },
  tag({ words, entities }) {
    const spans = entities ?? words, kinds = [...new Set([...page.labels.map((label) => label.replace(/^[BIESLU]-/, "")), ...spans.map((one) => one.label)])].filter((label) => label !== "O");
    const chosen = spans.filter((one) => one.label !== "O"), letters = [...state.texts[0]];
    return [marked(letters, chosen.map((one) => ({ ...one, note: `${one.label} ${percent(one.score)}`, color: kinds.indexOf(one.label) }))),
      chosen.length ? null : make("p", { class: "soft" }, "No entity was found."),
      note("Every word gets a label from the state of its first token: B- begins an entity, I- continues it, O is outside.")];
  },
  answer({ answers, none }, former) {
    const letters = [...state.texts[1]], nothing = page.threshold !== null && none > page.threshold;
    if (!answers.length) return [make("p", { class: "soft" }, "Write a passage to look in.")];
    const was = (one) => former?.answers.find((old) => old.text === one.text)?.score ?? null;
    return [make("p", { class: "big" }, nothing ? "No answer" : answers[0].text), marked(letters, nothing ? [] : [answers[0]]),
      bars(answers.map((one) => ({ name: clipped(one.text), value: one.score, was: was(one) }))),
      page.threshold === null ? null : make("p", { class: "soft" }, `“There is no answer” has a probability of ${percent(none)}.`),
      note("Two scores for every token of the passage: how likely an answer begins there, and ends there.")];
  },
  masked_lm(masks, former) {
    if (!masks.length) return [make("p", { class: "soft" }, `Write ${MASK} for a word, or choose a word below and mask it: the model predicts the missing word.`)];
    return [...masks.slice(0, 4).flatMap(({ row, best }, number) => {
      const old = former ? former[number] : null, original = state.former?.original;
      const rows = best.slice(0, masks.length > 1 ? 5 : 8).map((guess) => {
        const was = old ? old.best.find((one) => one.id === guess.id)?.score ?? null : null;
        const least = old && was === null ? `was < ${percent(old.best[old.best.length - 1].score)}` : null;
        return { name: guess.text, value: guess.score, was, before: least, mine: original && guess.text.replace(/^␣/, "").toLowerCase() === original.toLowerCase(), title: `Put “${guess.text}” in the place of ${MASK}` };
      });
      return [masks.length > 1 ? make("h3", {}, `Mask ${number}`) : null,
        bars(rows, (at) => change(row, best[at].text.replace(/^␣/, ""), `${MASK} filled in`))];
    }), masks.length > 4 ? make("p", { class: "soft" }, `and ${masks.length - 4} more masks`) : null,
    note(`The model learned to guess masked words from the words on both sides. Choose a guess to put it in the text.`)];
  },
  follows({ head, scores }, former) {
    const order = head === "sentence_order", names = order ? ["in order", "swapped"] : ["follows", "does not follow"];
    return [make("p", { class: "big" }, scores[0] >= 0.5 ? (order ? "The texts are in order" : "The second text follows the first") : (order ? "The texts are swapped" : "The second text does not follow")),
      bars(names.map((name, at) => ({ name, value: scores[at], was: former ? former.scores[at] : null }))),
      note(order ? "Trained on pairs of neighbours, half of them swapped." : "Trained on pairs of texts, half of them neighbours and half from different places.")];
  },
  replaced(scores, former) {
    const rows = scores.map((value, row) => ({ name: state.result.tokens[row].text, value, was: former && former.length === scores.length ? former[row] : null, special: state.result.tokens[row].special }));
    return [bars(rows.filter((row) => !row.special).sort((a, b) => b.value - a.value).slice(0, 6)),
      note("How likely each token is not the original one: the model was trained to find replaced tokens.")];
  },
};
const TITLES = {
  classify: "Label", tag: "Labelled words", answer: "Answer", masked_lm: "Guesses for the mask",
  follows: "Does the second text follow?", replaced: "Replaced tokens", similarity: "Similarity",
};

const note = (text) => make("p", { class: "soft note" }, text);

function marked(letters, spans) {
  const passage = make("p", { class: "passage" });
  let done = 0;
  for (const { start, end, note: label, color } of [...spans].sort((a, b) => a.start - b.start)) {
    if (start < done || end <= start) continue;
    const mark = make("mark", {}, letters.slice(start, end).join(""), label ? make("small", {}, label) : null);
    if (color !== undefined) mark.style.setProperty("--own", `var(--c${Math.max(0, color) % 8})`);
    passage.append(letters.slice(done, start).join(""), mark);
    done = end;
  }
  passage.append(letters.slice(done).join(""));
  return passage;
}

function unrelated() {
  const { unrelated: usual } = page;
  return usual === null ? "" : ` Sentences that have nothing to do with each other have about ${usual.toFixed(2)} in this model, not 0${usual > 0.5 ? ": it was not trained for similarity" : ""}.`;
}

ANSWERS.similarity = (value, former) => {
  return [make("p", { class: "big" }, value.toFixed(3), " ", make("small", {}, `cosine similarity${typeof former === "number" ? `, was ${former.toFixed(3)}` : ""}`)),
    note(`Each text alone becomes one vector, the mean of its states; 1 means the same direction.${unrelated()}`)];
};

function showAnswers() {
  const { answers, similarity: alike, left_out: left, tokens, milliseconds } = state.result, { former } = state;
  const now = { ...answers, similarity: alike }, past = { ...former?.answers, similarity: former?.similarity };
  const panels = Object.entries(TITLES).flatMap(([name, title]) => {
    const value = now[name];
    if (value === undefined || value === null) return [];
    const parts = ANSWERS[name](value, former ? past[name] : null);
    return [make("div", { class: "answer", "data-answer": name }, make("h3", {}, title), ...parts.filter(Boolean))];
  });
  if (!panels.length) panels.push(make("p", { class: "soft" }, "Add a second text to compare the two."));
  const changed = former ? [make("p", { class: "changed" }, make("b", {}, "Changed: "), former.about, ". The marks in the bars show the answer before.")] : [];
  find("answers").replaceChildren(...changed, ...panels);
  const cutOff = left ? ` · the last ${left} are left out: this page reads ${page.longest}` : "";
  find("status").replaceChildren(`${tokens.length} tokens in ${Math.round(milliseconds).toLocaleString("en")} ms${cutOff}`);
  const gone = [...[...state.skipped].map((layer) => `layer ${layer}`), ...[...state.off].map((key) => `head ${key}`)];
  if (gone.length) {
    find("status").append(" · switched off: ", make("b", {}, gone.length > 6 ? `${gone.length} parts` : gone.join(", ")), " ", button("Switch all on", () => {
      keep("all heads and layers on again");
      state.off.clear();
      state.skipped.clear();
      later();
    }));
  }
}
