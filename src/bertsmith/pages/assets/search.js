// Search as one types: each answer replaces the former, and late ones are dropped.
"use strict";
const ask = document.getElementById("ask");
const [query, mode, kind] = ["query", "mode", "kind"].map((id) => document.getElementById(id));
const [status, list] = ["status", "hits"].map((id) => document.getElementById(id));
let waiting = 0, asked = 0;

function element(name, text, className) {
  const one = document.createElement(name);
  one.textContent = text;
  if (className) one.className = className;
  return one;
}

// Highlights are characters of Python, where one beyond the basic plane counts once.
function marked(hit) {
  const text = [...hit.text], parts = document.createElement("p");
  parts.className = hit.kind === "code" ? "text code" : "text";
  const end = hit.excerpt[1];
  let place = hit.excerpt[0];
  if (hit.cut) parts.append("… ");
  for (const [low, high] of hit.highlights) {
    if (low < place || high > end) continue;
    parts.append(text.slice(place, low).join(""), element("mark", text.slice(low, high).join("")));
    place = high;
  }
  parts.append(text.slice(place, end).join("") + (end < text.length ? " …" : ""));
  return parts;
}

function shown(hit) {
  const item = document.createElement("li"), place = element("div", "", "place");
  const where = hit.unit === "line" ? `${hit.file}:${hit.line}` : `${hit.file}, ${hit.unit} ${hit.line}`;
  place.append(element("b", where));
  if (hit.document) place.append(element("span", hit.document, "soft"));
  const cosine = hit.vectors === null ? "" : ` · cosine ${hit.vectors.toFixed(3)}`;
  const bm25 = hit.keywords === null ? "" : ` · BM25 ${hit.keywords.toFixed(2)}`;
  place.append(element("small", "score " + hit.score.toFixed(3) + bm25 + cosine));
  item.append(place);
  const above = hit.heading.startsWith(hit.title) ? hit.heading : [hit.title, hit.heading].filter(Boolean).join(" > ");
  if (above) item.append(element("p", above, "above"));
  item.append(marked(hit));
  return item;
}

async function search() {
  const number = ++asked;
  const values = new URLSearchParams({ q: query.value, mode: mode.value, kind: kind.value });
  history.replaceState(null, "", query.value ? "#" + values : "#");
  if (!query.value.trim()) { list.replaceChildren(); status.textContent = ""; return; }
  const started = performance.now();
  try {
    const answer = await fetch("search?" + values);
    const content = await answer.json();
    if (number !== asked) return;
    status.className = answer.ok ? "soft" : "soft bad";
    if (!answer.ok) { list.replaceChildren(); status.textContent = content.error; return; }
    const count = content.results.length;
    const took = Math.round(performance.now() - started);
    status.textContent = count ? `${count} passages in ${took} ms` : "Nothing matches.";
    list.replaceChildren(...content.results.map(shown));
  } catch (error) {
    if (number !== asked) return;
    status.className = "soft bad";
    status.textContent = "The server does not answer: is bertsmith search --page still running?";
  }
}

ask.addEventListener("submit", (event) => { event.preventDefault(); search(); });
query.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 150); });
mode.addEventListener("change", search);
kind.addEventListener("change", search);
const former = new URLSearchParams(location.hash.slice(1));
if (former.get("q")) {
  query.value = former.get("q");
  for (const one of [mode, kind]) {
    const value = former.get(one.id) || one.value;
    if ([...one.options].some((option) => option.value === value)) one.value = value;
  }
  search();
}
