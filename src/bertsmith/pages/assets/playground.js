// The playground: each task is a form, a request and a view of the answer.
"use strict";
const page = JSON.parse(document.getElementById("page").textContent);

const percent = (value) => (value * 100).toLocaleString("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 }) + "%";
const clipped = (value) => Math.max(0, Math.min(1, value));
// Offsets count code points, JavaScript counts UTF-16 units.
const characters = (text) => Array.from(text);
const between = (letters, start, end) => letters.slice(start, end).join("");

// A name that may break after its underscores.
const breakable = (name) => name.split(/(?<=_)/).flatMap((part) => [part, make("wbr")]);

function bars(rows, choose = null) {
  const list = make("ul", { class: "rows" });
  rows.forEach(({ name, value, shown }, number) => {
    const bar = make("i");
    bar.style.width = `${clipped(value) * 100}%`;
    const label = choose
      ? make("button", { type: "button", "aria-pressed": String(number === 0), onclick: (event) => {
        for (const one of list.querySelectorAll("button")) one.setAttribute("aria-pressed", String(one === event.currentTarget));
        choose(number);
      } }, name)
      : make("span", { class: "name" }, ...breakable(name));
    list.append(make("li", {}, label, make("span", { class: "bar", "aria-hidden": "true" }, bar), make("span", { class: "value" }, shown ?? percent(value))));
  });
  return list;
}

function marked(text, spans) {
  const letters = characters(text);
  const passage = make("p", { class: "passage" });
  let done = 0;
  for (const { start, end, note, color } of [...spans].sort((a, b) => a.start - b.start)) {
    if (start < done || end <= start) continue;
    passage.append(between(letters, done, start));
    const mark = make("mark", {}, between(letters, start, end), note ? make("small", {}, note) : null);
    if (color !== undefined) mark.style.setProperty("--own", `var(--c${color % 8})`);
    passage.append(mark);
    done = end;
  }
  passage.append(between(letters, done));
  return passage;
}

// A line of tokens; choosing one shades the tokens of another line (or its own) by weights.
function tokens(names, choose, special = []) {
  const line = make("div", { class: "line" });
  names.forEach((name, number) => {
    line.append(make("button", {
      type: "button", class: special[number] ? "special" : null, "aria-pressed": "false",
      onclick: () => choose(number), onmouseenter: () => choose(number),
    }, name || "␣"));
  });
  return line;
}

function shade(line, weights, most) {
  [...line.children].forEach((token, number) => {
    token.style.setProperty("--weight", weights ? clipped(weights[number] / most) : 0);
    token.title = weights ? weights[number].toFixed(3) : "";
  });
}

function press(line, chosen) {
  [...line.children].forEach((token, number) => token.setAttribute("aria-pressed", String(number === chosen)));
}

const text = (name, label, value, more = {}) => ({ name, label, value, rows: 3, ...more });
const short = (name, label, value) => ({ name, label, value, rows: 0 });
const mask = () => model().mask || "[MASK]";

const TASKS = [
  {
    id: "fill-mask", name: "Fill mask", needs: "fill-mask", about: "Which tokens could stand here?",
    fields: () => [text("inputs", "Text", `Paris is the ${mask()} of France.`, { insert: mask() })],
    examples: () => [`The ${mask()} sat on the mat.`, `She plays the ${mask()} in an orchestra.`, `Two plus two is ${mask()}.`].map((inputs) => ({ inputs })),
    body: (v) => ({ inputs: v.inputs, top: 8 }),
    python: (v) => `bert.fill_mask(${quote(v.inputs)}, top=8)`,
    ready: (v) => v.inputs.includes(mask()) || `Write ${mask()} where a word is missing.`,
    show(answer, target) {
      const guesses = answer.results[0];
      const count = Math.max(...guesses.map((guess) => guess.mask)) + 1;
      for (let number = 0; number < count; number++) {
        const own = guesses.filter((guess) => guess.mask === number);
        if (count > 1) target.append(make("h3", {}, `Mask ${number + 1}`));
        target.append(bars(own.map((guess) => ({ name: guess.token, value: guess.score }))));
      }
      target.append(make("p", { class: "soft" }, guesses[0].text));
    },
  },
  {
    id: "classify", name: "Classify", needs: "classify", about: "The label of a text, or of a pair of texts.",
    fields: () => [text("inputs", "Text", "A film that I would watch again."), text("pairs", "Second text, if the model compares two", "", { rows: 1 })],
    body: (v) => (v.pairs ? { inputs: v.inputs, pairs: v.pairs } : { inputs: v.inputs }),
    python: (v) => `bert.classify(${quote(v.inputs)}${v.pairs ? `, ${quote(v.pairs)}` : ""})`,
    ready: (v) => v.inputs !== "" || "Write a text.",
    show(answer, target) {
      const best = answer.results[0];
      const rows = Object.entries(best.scores).sort((a, b) => b[1] - a[1]);
      if (rows.length === 1) {
        target.append(make("p", { class: "big" }, best.score.toPrecision(4), " ", make("small", {}, best.label)));
        return;
      }
      target.append(make("p", { class: "big" }, best.label, " ", make("small", {}, percent(best.score))));
      target.append(bars(rows.slice(0, 20).map(([name, value]) => ({ name, value }))));
      if (rows.length > 20) target.append(make("p", { class: "soft" }, `and ${rows.length - 20} more`));
    },
  },
  {
    id: "tag", name: "Entities", needs: "tag", about: "Entities, or the label of every word.",
    fields: () => [text("inputs", "Text", "Ada Lovelace was born in London and worked with Charles Babbage.")],
    body: (v) => ({ inputs: v.inputs }),
    python: (v) => `bert.tag(${quote(v.inputs)})`,
    ready: (v) => v.inputs !== "" || "Write a text.",
    show(answer, target, v) {
      const found = answer.results[0];
      const kinds = [...new Set([...model().labels.map((label) => label.replace(/^[BIESLU]-/, "")), ...found.map((one) => one.label)])];
      target.append(marked(v.inputs, found.map((one) => ({ ...one, note: one.label, color: kinds.indexOf(one.label) }))));
      target.append(found.length
        ? bars(found.slice(0, 30).map((one) => ({ name: `${one.text} · ${one.label}`, value: one.score })))
        : make("p", { class: "soft" }, "No entity was found."));
    },
  },
  {
    id: "answer", name: "Answer", needs: "answer", about: "The part of a passage that answers a question.",
    fields: () => [short("question", "Question", "Who designed the engine?"), text("passage", "Passage", "The Analytical Engine was designed by Charles Babbage. Ada Lovelace wrote the first program for it in 1843.", { rows: 6 })],
    body: (v) => ({ question: v.question, passage: v.passage, top: 5 }),
    python: (v) => `bert.answer(${quote(v.question)}, ${quote(v.passage)}, top=5)`,
    ready: (v) => (v.question !== "" && v.passage !== "") || "Write a question and a passage.",
    show(answer, target, v) {
      const found = answer.results;
      if (!found.length) { target.append(make("p", { class: "soft" }, "There is no answer.")); return; }
      const best = make("p", { class: "big" }, found[0].text || "No answer", " ", make("small", {}, percent(found[0].score)));
      let passage = marked(v.passage, [found[0]]);
      target.append(best, passage, make("h3", {}, "Best answers"), bars(found.map((one) => ({ name: one.text || "no answer", value: one.score })), (number) => {
        const next = marked(v.passage, [found[number]]);
        passage.replaceWith(next);
        passage = next;
      }));
    },
  },
  {
    id: "choose", name: "Choose", needs: "choose", about: "Which choice goes best with a prompt?",
    fields: () => [text("prompt", "Prompt", "The street is wet because"), text("choices", "Choices, one per line", "it rained all night\nthe sun is shining\nbread is sold here")],
    body: (v) => ({ prompt: v.prompt, choices: v.choices.split("\n").filter((line) => line.trim()) }),
    python: (v) => `bert.choose(${quote(v.prompt)}, [${v.choices.split("\n").filter((line) => line.trim()).map(quote).join(", ")}])`,
    ready: (v) => v.choices.trim() !== "" || "Write one choice per line.",
    show(answer, target, v) {
      const choices = v.choices.split("\n").filter((line) => line.trim());
      target.append(make("p", { class: "big" }, answer.results.text));
      target.append(bars(answer.results.scores.map((value, number) => ({ name: choices[number], value })).sort((a, b) => b.value - a.value)));
    },
  },
  {
    id: "similarity", name: "Similarity", needs: "embed", about: "How similar are two texts? Choose a token to see which tokens of the other text are near it.",
    fields: () => [text("first", "Text", "The cat sat on the mat."), text("second", "Other text", "A kitten lay on a rug.")],
    body: (v) => ({ first: v.first, second: v.second }),
    path: "/similarity",
    python: (v) => `one, two = bert.embed([${quote(v.first)}, ${quote(v.second)}], normalise=True)\nprint(one @ two)`,
    ready: (v) => (v.first !== "" && v.second !== "") || "Write two texts.",
    show(answer, target) {
      target.append(make("p", { class: "big" }, answer.similarity.toFixed(3), " ", make("small", {}, "cosine similarity")));
      const cells = answer.tokens.flat();
      const low = Math.min(...cells), range = Math.max(1e-6, Math.max(...cells) - low);
      const near = (values) => values.map((value) => (value - low) / range);
      const first = tokens(answer.first.map((token) => token.text), (chosen) => {
        press(first, chosen); press(second, -1); shade(first, null, 1); shade(second, near(answer.tokens[chosen]), 1);
      });
      const second = tokens(answer.second.map((token) => token.text), (chosen) => {
        press(second, chosen); press(first, -1); shade(second, null, 1); shade(first, near(answer.tokens.map((row) => row[chosen])), 1);
      });
      target.append(make("h3", {}, "Text"), first, make("h3", {}, "Other text"), second, make("p", { class: "soft" }, "The stronger the colour, the more similar a token is in the last layer."));
      if (cells.length) {
        // Begin with the word that has the nearest one, not with a full stop.
        const best = answer.tokens.map((row, at) => (/[\p{L}\p{N}]{3}/u.test(answer.first[at].text) ? 1 : 0) + Math.max(...row));
        first.children[best.indexOf(Math.max(...best))].click();
      }
    },
  },
  {
    id: "tokens", name: "Tokens", needs: "embed", about: "How a text becomes tokens: what the model really reads.",
    fields: () => [text("inputs", "Text", "Tokenizers split uncommon words, naïve spellings and 😀 into pieces.", { rows: 4 })],
    path: "/tokenize", body: (v) => ({ inputs: v.inputs }),
    python: (v) => `import requests\nrequests.post(${quote(location.origin + "/tokenize")}, json={"inputs": ${quote(v.inputs)}}).json()`,
    plain: true,
    ready: () => true,
    show(answer, target, v) {
      const row = answer[0];
      const plain = row.filter((token) => !token.special);
      const letters = characters(v.inputs);
      target.append(make("p", { class: "big" }, plain.length.toLocaleString("en"), " ", make("small", {}, `tokens for ${letters.length.toLocaleString("en")} characters, and ${row.length - plain.length} special ones; the model reads ${model().max_length.toLocaleString("en")} at once`)));
      const line = make("div", { class: "line" });
      row.forEach((token, number) => {
        const unknown = !token.special && /^\[?<?unk>?\]?$/i.test(token.text);
        const place = token.special ? "special token" : `characters ${token.start} to ${token.stop}: “${between(letters, token.start, token.stop)}”`;
        const one = make("span", { class: `token${token.special ? " special" : ""}${unknown ? " unknown" : ""}`, title: place }, token.text, make("small", {}, String(token.id)));
        one.style.setProperty("--weight", token.special ? 0 : (number % 2 ? 0.12 : 0.26));
        line.append(one);
      });
      target.append(line);
    },
  },
  {
    id: "attention", name: "Attention", needs: "embed", about: "What a token attends to: choose one, a layer and a head.",
    fields: () => [text("text", "Text", "The animal did not cross the street because it was tired.")],
    path: "/attention", body: (v) => ({ text: v.text }),
    python: (v) => `bert.attention(${quote(v.text)}).save("attention.html")`,
    ready: (v) => v.text !== "" || "Write a text.",
    show(answer, target) {
      const layer = make("select", { id: "layer" }, ...answer.layers.map((number) => make("option", { value: number }, `${number + 1} of ${answer.layers.length}`)));
      const head = make("select", { id: "head" }, make("option", { value: "mean" }, "mean of all"), ...answer.heads.map((number) => make("option", { value: number }, String(number + 1))));
      const kept = target.kept || { layer: Math.floor(answer.layers.length / 2), head: "mean", token: null };
      layer.value = answer.layers.includes(Number(kept.layer)) ? kept.layer : 0;
      head.value = kept.head;
      const weights = (row) => {
        const maps = answer.weights[layer.selectedIndex].filter((map) => map[0][0] !== null);
        if (head.value !== "mean") return (maps[head.selectedIndex - 1] || maps[0])[row];
        return maps[0][row].map((_, column) => maps.reduce((sum, map) => sum + map[row][column], 0) / maps.length);
      };
      const line = tokens(answer.tokens.map((token) => token.text), (chosen) => {
        target.kept = { layer: layer.value, head: head.value, token: chosen };
        const own = weights(chosen);
        press(line, chosen);
        shade(line, own, Math.max(...own));
        const best = own.map((value, number) => ({ name: `${answer.tokens[number].text}`, value })).sort((a, b) => b.value - a.value).slice(0, 5);
        list.replaceChildren(bars(best));
        said.textContent = `“${answer.tokens[chosen].text}” attends most to`;
      }, answer.tokens.map((token) => token.source === null));
      const list = make("div"), said = make("h3");
      const again = () => line.children[target.kept.token].click();
      layer.addEventListener("change", again);
      head.addEventListener("change", again);
      target.append(make("div", { class: "options form" }, make("label", {}, "Layer", layer), make("label", {}, "Head", head)), line, said, list);
      const start = kept.token === null || kept.token >= answer.tokens.length ? Math.min(1, answer.tokens.length - 1) : kept.token;
      line.children[start].click();
    },
  },
  {
    id: "search", name: "Search", needs: "index", about: "The best passages of the indexed documents.",
    fields: () => [short("query", "Query", "")],
    path: "/search", body: (v) => ({ query: v.query, top: 10 }), global: true,
    python: (v) => `bert.search(${quote(v.query)}, top=10)`,
    ready: (v) => v.query !== "" || "Write what you look for.",
    show(answer, target) {
      const list = make("ol", { class: "hits" });
      for (const hit of answer.results) {
        const passage = marked(hit.text, (hit.highlights || []).map(([start, end]) => ({ start, end })));
        passage.className = "";
        list.append(make("li", {}, make("b", {}, hit.title || hit.file), " ", make("small", {}, `${hit.file}, ${hit.unit} ${hit.line} · ${hit.score.toPrecision(3)}`), passage));
      }
      target.append(answer.results.length ? list : make("p", { class: "soft" }, "Nothing was found."));
    },
  },
];

// ------------------------------------------------------------------ requests

const select = find("model");
const model = () => page.models.find((one) => one.id === select.value);
const quote = (value) => JSON.stringify(value);
const named = (task, body) => (task.global || page.models.length === 1 ? body : { ...body, model: model().id });

function snippets(task, values) {
  const body = named(task, task.body(values));
  const key = page.key ? " -H 'Authorization: Bearer '\"$BERTSMITH_API_KEY\"" : "";
  const data = JSON.stringify(body).replaceAll("'", "'\\''");
  const curl = `curl ${location.origin}${task.path || "/" + task.id}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d '${data}'`;
  const more = `${page.models.length > 1 && !task.global ? `, model=${quote(model().id)}` : ""}${page.key ? ', api_key="…"' : ""}`;
  const python = task.plain ? task.python(values) : `import bertsmith as bs\nbert = bs.connect(${quote(location.origin)}${more})\n${task.python(values)}`;
  return { curl, python };
}

async function ask(task, values, signal) {
  const headers = { "Content-Type": "application/json" };
  if (page.key && find("key").value) headers.Authorization = `Bearer ${find("key").value}`;
  const start = performance.now();
  const response = await fetch(task.path || "/" + task.id, { method: "POST", headers, body: JSON.stringify(named(task, task.body(values))), signal });
  const answer = await response.json();
  if (!response.ok) throw new Error(typeof answer.error === "string" ? answer.error : answer.message || `status ${response.status}`);
  const count = response.headers.get("x-compute-tokens");
  const time = `${Math.round(performance.now() - start)} ms`;
  return { answer, status: count ? `${Number(count).toLocaleString("en")} tokens, ${time}` : time };
}

// ------------------------------------------------------------------ panels

function panel(task) {
  const inputs = {}, form = make("form", { class: "form", autocomplete: "off" });
  for (const field of task.fields()) {
    const id = `${task.id}-${field.name}`;
    const input = field.rows ? make("textarea", { id, rows: field.rows, spellcheck: "false" }) : make("input", { id, type: "text", spellcheck: "false" });
    input.value = field.value;
    inputs[field.name] = input;
    form.append(make("label", { for: id }, field.label, input));
    if (field.insert) {
      form.append(make("div", { class: "tools" }, make("button", { type: "button", onclick: () => {
        input.setRangeText(field.insert, input.selectionStart, input.selectionEnd, "end");
        input.focus();
        later(0);
      } }, `Insert ${field.insert}`)));
    }
  }
  const examples = task.examples ? task.examples() : [];
  if (examples.length) {
    form.append(make("div", { class: "tools" }, "Try: ", ...examples.map((one) => make("button", { type: "button", onclick: () => {
      for (const [name, value] of Object.entries(one)) inputs[name].value = value;
      later(0);
    } }, Object.values(one)[0]))));
  }
  const result = make("div", { class: "result", role: "region", "aria-label": "Result", "aria-live": "polite" });
  const status = make("p", { class: "status", role: "status" });
  const curl = make("pre", { tabindex: "0", "aria-label": "curl command" }), python = make("pre", { tabindex: "0", "aria-label": "Python code" });
  const copy = (source) => make("button", { type: "button", onclick: async (event) => {
    await navigator.clipboard.writeText(source.textContent);
    const button = event.target;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1200);
  } }, "Copy");
  const request = make("details", { class: "request" }, make("summary", {}, "The request behind this answer"),
    make("h3", {}, "curl", copy(curl)), curl, make("h3", {}, "Python", copy(python)), python);
  let timer = 0, running = null;

  async function run() {
    const values = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]));
    const written = snippets(task, values);
    curl.textContent = written.curl;
    python.textContent = written.python;
    running?.abort();
    const ready = task.ready(values);
    if (ready !== true) {
      result.replaceChildren(make("p", { class: "soft" }, ready));
      status.textContent = "";
      result.setAttribute("aria-busy", "false");
      return;
    }
    const own = running = new AbortController();
    result.setAttribute("aria-busy", "true");
    try {
      const done = await ask(task, values, own.signal);
      if (own !== running) return;
      const next = make("div");
      next.kept = result.firstChild?.kept;
      task.show(done.answer, next, values);
      result.replaceChildren(next);
      status.textContent = done.status;
    } catch (error) {
      if (error.name === "AbortError" || own !== running) return;
      result.replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
      status.textContent = "";
    }
    result.setAttribute("aria-busy", "false");
  }

  function later(milliseconds = 250) {
    clearTimeout(timer);
    timer = setTimeout(run, milliseconds);
  }

  form.addEventListener("input", () => later());
  form.addEventListener("submit", (event) => { event.preventDefault(); later(0); });
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) later(0); });
  const section = make("section", { class: "panel", role: "tabpanel", id: `panel-${task.id}`, "aria-labelledby": `tab-${task.id}` },
    make("h2", {}, task.name), make("p", { class: "soft" }, task.about), make("div", { class: "sides" }, form, make("div", {}, result, status)), request);
  return { section, run };
}

let panels = {};

function open(id, focus = false) {
  for (const tab of find("tabs").children) {
    const chosen = tab.id === `tab-${id}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (chosen && focus) tab.focus();
  }
  for (const [name, one] of Object.entries(panels)) one.section.hidden = name !== id;
  history.replaceState(null, "", `#${id}`);
  panels[id].run();
}

function draw() {
  const shown = TASKS.filter((task) => (task.needs === "index" ? page.index : model().can.includes(task.needs)));
  const wanted = location.hash.slice(1);
  panels = {};
  find("tabs").replaceChildren(...shown.map((task) => make("button", { type: "button", role: "tab", id: `tab-${task.id}`, "aria-controls": `panel-${task.id}`, onclick: () => open(task.id) }, task.name)));
  find("panels").replaceChildren(...shown.map((task) => (panels[task.id] = panel(task)).section));
  open(shown.some((task) => task.id === wanted) ? wanted : shown[0].id);
}

find("tabs").addEventListener("keydown", (event) => {
  const all = [...find("tabs").children], at = all.indexOf(document.activeElement);
  const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (next === undefined || at < 0) return;
  event.preventDefault();
  open(all[(next + all.length) % all.length].id.slice(4), true);
});
select.append(...page.models.map((one) => make("option", { value: one.id }, `${one.id} (${one.family}, ${one.layers} × ${one.width})`)));
select.addEventListener("change", draw);
find("key")?.addEventListener("change", () => open(location.hash.slice(1)));
find("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.style.colorScheme = dark ? "light" : "dark";
});
find("setup").addEventListener("submit", (event) => event.preventDefault());
draw();
document.documentElement.dataset.ready = "yes";
