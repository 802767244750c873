// Decisions about labels that may be wrong: keys, undo, kept in this browser, downloaded as jsonl.
{
  const bar = document.getElementById("bar");
  const articles = [...document.querySelectorAll("article.suspect")];
  const rows = articles.map((one) => JSON.parse(one.dataset.row));
  const place = bar ? `bertsmith wrong labels ${bar.dataset.file} ${rows.map((one) => one.sum).join("").slice(0, 400)}` : "";
  const decisions = new Map();
  const history = [];
  let current = 0;
  const stored = (write) => {
    try {
      if (write) localStorage.setItem(place, JSON.stringify([...decisions]));
      else for (const [n, one] of JSON.parse(localStorage.getItem(place) ?? "[]")) decisions.set(n, one);
    } catch { /* a browser that keeps nothing for files still has the download */ }
  };
  const show = () => {
    articles.forEach((article, number) => {
      article.classList.toggle("current", number === current);
      for (const button of article.querySelectorAll("button")) {
        button.setAttribute("aria-pressed", String(decisions.get(number) === button.dataset.decision));
      }
    });
    document.getElementById("progress").textContent = `${decisions.size} of ${articles.length} decided`;
    document.getElementById("undo").disabled = history.length === 0;
  };
  const move = (number) => {
    current = Math.max(0, Math.min(articles.length - 1, number));
    articles[current].focus({ preventScroll: true });
    articles[current].scrollIntoView({ block: "nearest" });
    show();
  };
  const decide = (number, what) => {
    history.push([number, decisions.get(number)]);
    decisions.set(number, what);
    stored(true);
    move(number + 1);
  };
  const undo = () => {
    const [number, before] = history.pop() ?? [];
    if (number === undefined) return;
    if (before === undefined) decisions.delete(number);
    else decisions.set(number, before);
    stored(true);
    move(number);
  };
  const download = () => {
    const lines = [...decisions].sort(([a], [b]) => a - b).map(([number, what]) => {
      const { suggestion, ...row } = rows[number];
      return JSON.stringify({ ...row, decision: what, ...(what === "relabel" ? { to: suggestion } : {}) });
    });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines.map((line) => `${line}\n`), { type: "application/jsonl" }));
    link.download = "corrections.jsonl";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  if (bar) {
    stored(false);
    articles.forEach((article, number) => {
      article.addEventListener("click", (event) => {
        const what = event.target.dataset?.decision;
        if (what) decide(number, what);
        else move(number);
      });
    });
    document.getElementById("undo").addEventListener("click", undo);
    document.getElementById("download").addEventListener("click", download);
    const keys = { k: "keep", x: "leave out", s: "relabel" };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in keys) decide(current, keys[event.key]);
      else if (event.key === "u") undo();
      else if (event.key === "ArrowDown") move(current + 1);
      else if (event.key === "ArrowUp") move(current - 1);
      else return;
      event.preventDefault();
    });
    show();
  }
}
