// The playground: each task is a form, a request and a view of the answer. Those of uses come from the server.
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

// Views of answers: a task's script registers its own by verb, as show(results, target, values), and
// may add ready(values): true, or what is missing.
const views = {};

function register(verb, show, ready = null) {
  views[verb] = { show, ready };
}

// Any answer: names with bars where there are numbers from 0 to 1, else JSON.
function generic(results, target) {
  const share = (value) => typeof value === "number" && value >= 0 && value <= 1;
  const object = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const rows = Array.isArray(results) && results.length === 1 && typeof results[0] === "object" ? results[0] : results;
  const entries = Array.isArray(rows) ? rows.map((one, number) => [String(number + 1), one]) : object(rows) ? Object.entries(rows) : [["", rows]];
  const shown = [];
  for (const [name, value] of entries) {
    if (share(value)) shown.push({ name, value });
    else if (object(value) && Object.values(value).every(share)) Object.entries(value).forEach(([own, score]) => shown.push({ name: own, value: score }));
    else if (object(value) && Object.values(value).some(share)) {
      const words = Object.values(value).filter((one) => typeof one === "string");
      shown.push({ name: words.join(" · ") || name, value: share(value.score) ? value.score : Object.values(value).find(share) });
    } else if (typeof value === "string") target.append(make("p", { class: "big" }, value));
    else target.append(make("pre", {}, JSON.stringify(value, null, 2)));
  }
  if (shown.length) target.append(bars(shown.slice(0, 30)));
}

const lines = (value) => value.split("\n").filter((line) => line.trim());
const spoken = (field) => (field.list ? field.label.toLowerCase() : `${/^[aeiou]/i.test(field.label) ? "an" : "a"} ${field.label.toLowerCase()}`);
const unmasked = (value) => (typeof value === "string" ? value.replaceAll("[MASK]", mask()) : value);

// A use of the server as a task: its form is that of its request.
function use({ verb, method, title, question, fields }) {
  const shown = fields.filter((field) => field.label), view = views[verb] || {};
  const needed = shown.filter((field) => field.required);
  const sent = (v) => fields.map((field) => {
    const value = field.label ? v[field.name] : field.value;
    return { ...field, value: field.list && field.label ? lines(value) : value };
  }).filter((field) => field.required || field.value !== "");
  return {
    id: verb, name: title, needs: verb, about: question,
    fields: () => shown.map((field) => ({ ...field, value: unmasked(field.value), insert: unmasked(field.insert) })),
    examples: () => shown.flatMap((field) => (field.examples || []).map((value) => ({ [field.name]: unmasked(value) }))),
    body: (v) => Object.fromEntries(sent(v).map((field) => [field.name, field.value])),
    python: (v) => `bert.${method}(${sent(v).map((field) => (field.required ? "" : `${field.name}=`) + quote(field.value)).join(", ")})`,
    ready: (v) => {
      if (needed.some((field) => !v[field.name].trim())) return `Write ${needed.map(spoken).join(" and ")}.`;
      return view.ready ? view.ready(v) : true;
    },
    show: (answer, target, v) => (view.show || generic)(answer.results, target, v),
  };
}

const OTHERS = [
  {
    id: "two-texts", name: "Similarity", needs: "embed", about: "How similar are two texts? Choose a token to see which tokens of the other text are near it.",
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

OTHERS.push({
  id: "drift", name: "Drift", get: true, path: "/drift", global: true,
  about: "Do today's texts and predictions look like those of the evaluation data? Bars compare shares; the index above them is the population stability index.",
  fields: () => [], body: () => ({}), ready: () => true,
  python: () => `import requests\nrequests.get(${quote(location.origin + "/drift")}).json()`,
  show(answer, target) {
    const own = answer.models[model().id];
    const soft = (words) => target.append(make("p", { class: "soft" }, words));
    const count = (counts) => Object.values(counts).reduce((sum, one) => sum + one, 0);
    const texts = own ? count(own.today.lengths) : 0;
    if (!texts) return soft("No text was read today.");
    soft(`${texts.toLocaleString("en")} texts on ${own.day} (UTC).`);
    if (!own.stored) soft("The model has no figures of its evaluation data: bertsmith finetune stores them with --dev or --test.");
    for (const [name, today] of Object.entries(own.today)) {
      const before = own.stored?.[name] || {}, index = own.drift[name];
      const bins = [...new Set([...Object.keys(before), ...Object.keys(today)])];
      if (!bins.length) continue;
      bins.sort((a, b) => (isNaN(a) ? a.localeCompare(b) : a - b));
      const said = index == null ? (own.stored ? "too few to compare" : "") : `index ${index.toFixed(2)}${index > own.limit ? `, above ${own.limit}` : ""}`;
      target.append(make("h3", { class: own.beyond.includes(name) ? "beyond" : null }, name.replace("_", " "), " ", make("small", {}, said)));
      const share = (counts, bin) => (counts[bin] || 0) / Math.max(1, count(counts));
      for (const bin of bins.slice(0, 30)) {
        const rows = [{ name: `${name === "lengths" ? `≤ ${bin} tokens` : name === "confidence" ? `from ${bin}` : bin}: today`, value: share(today, bin) }];
        if (own.stored) rows.push({ name: "evaluation", value: share(before, bin) });
        target.append(bars(rows));
      }
    }
    if (own.examples.length) target.append(make("h3", {}, "Uncertain texts"), bars(own.examples.map((one) => ({ name: `${one.text} → ${one.label ?? ""}`, value: one.score }))));
  },
});

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
  const authorized = page.key ? `,\n    Authorization: "Bearer …"` : "";
  const address = quote(location.origin + (task.path || "/" + task.id));
  const sent = `{\n  method: "POST",\n  headers: {\n    "Content-Type": "application/json"${authorized}\n  },\n  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")})\n}`;
  const got = `const answer = await response.json();`;
  if (task.get) return { curl: `curl ${location.origin}${task.path}${key}`, python: task.python(values), javascript: `const response = await fetch(${address});\n${got}` };
  return { curl, python, javascript: `const response = await fetch(${address}, ${sent});\n${got}` };
}

// The state of the page as its address: #task?model=NAME&field=text.
function written(task, values) {
  const own = new URLSearchParams({ ...(page.models.length > 1 ? { model: model().id } : {}), ...values });
  return `#${task.id}${own.size ? `?${own}` : ""}`;
}

function stored() {
  const [id, query] = location.hash.slice(1).split(/\?(.*)/s);
  return { id, values: Object.fromEntries(new URLSearchParams(query || "")) };
}

async function ask(task, values, signal) {
  const headers = { "Content-Type": "application/json" };
  if (page.key && find("key").value) headers.Authorization = `Bearer ${find("key").value}`;
  const start = performance.now();
  const post = { method: "POST", body: JSON.stringify(named(task, task.body(values))) };
  const response = await fetch(task.path || "/" + task.id, { ...(task.get ? {} : post), headers, signal });
  const answer = await response.json();
  if (!response.ok) throw new Error(typeof answer.error === "string" ? answer.error : answer.message || `status ${response.status}`);
  const count = response.headers.get("x-compute-tokens");
  const time = `${Math.round(performance.now() - start)} ms`;
  return { answer, status: count ? `${Number(count).toLocaleString("en")} tokens, ${time}` : time };
}

// ------------------------------------------------------------------ panels

function panel(task, values = {}) {
  const inputs = {}, form = make("form", { class: "form", autocomplete: "off" });
  for (const field of task.fields()) {
    const id = `${task.id}-${field.name}`;
    const input = field.rows ? make("textarea", { id, rows: field.rows, spellcheck: "false" }) : make("input", { id, type: "text", spellcheck: "false" });
    input.value = values[field.name] ?? field.value;
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
  const code = { curl: make("pre"), Python: make("pre"), JavaScript: make("pre") };
  const copy = (source) => make("button", { type: "button", onclick: async (event) => {
    const button = event.target;
    if (navigator.clipboard) await navigator.clipboard.writeText(source.textContent);
    else { // pages without HTTPS have none
      getSelection().selectAllChildren(source);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1200);
  } }, "Copy");
  const request = make("details", { class: "request" }, make("summary", {}, "The request behind this answer"),
    ...Object.entries(code).flatMap(([name, shown]) => {
      shown.tabIndex = 0;
      shown.setAttribute("aria-label", `The request in ${name}`);
      return [make("h3", {}, name, copy(shown)), shown];
    }));
  let timer = 0, running = null;

  async function run() {
    const values = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]));
    const sent = snippets(task, values);
    for (const [name, shown] of Object.entries(code)) shown.textContent = sent[name.toLowerCase()];
    history.replaceState(null, "", written(task, values));
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
  panels[id].run();
}

function draw() {
  const shown = [...page.forms.map(use), ...OTHERS].filter((task) => !task.needs || (task.needs === "index" ? page.index : model().can.includes(task.needs)));
  const wanted = stored();
  panels = {};
  find("tabs").replaceChildren(...shown.map((task) => make("button", { type: "button", role: "tab", id: `tab-${task.id}`, "aria-controls": `panel-${task.id}`, onclick: () => open(task.id) }, task.name)));
  find("panels").replaceChildren(...shown.map((task) => (panels[task.id] = panel(task, task.id === wanted.id ? wanted.values : {})).section));
  open(shown.some((task) => task.id === wanted.id) ? wanted.id : shown[0].id);
}

find("tabs").addEventListener("keydown", (event) => {
  const all = [...find("tabs").children], at = all.indexOf(document.activeElement);
  const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (next === undefined || at < 0) return;
  event.preventDefault();
  open(all[(next + all.length) % all.length].id.slice(4), true);
});
// The page as its address says; without a model in it, one that can do the task.
function restore() {
  const { id, values } = stored();
  const can = (one) => one.can.includes(id);
  const chosen = page.models.find((one) => one.id === values.model) || (can(model()) ? null : page.models.find(can));
  if (chosen) select.value = chosen.id;
  draw();
}

function start() {
  select.append(...page.models.map((one) => make("option", { value: one.id }, `${one.id} (${one.family}, ${one.layers} × ${one.width})`)));
  select.addEventListener("change", draw);
  find("key")?.addEventListener("change", () => open(stored().id));
  addEventListener("hashchange", restore);
  find("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (getComputedStyle(document.documentElement).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.style.colorScheme = dark ? "light" : "dark";
  });
  find("setup").addEventListener("submit", (event) => event.preventDefault());
  restore();
  document.documentElement.dataset.ready = "yes";
}

document.addEventListener("DOMContentLoaded", start); // the views of tasks come after this script
