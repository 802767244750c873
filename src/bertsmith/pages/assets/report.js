// Confusion matrix: counts or percentages, and the examples behind a cell.
{
  const examples = document.getElementById("cell-examples");
  const title = document.getElementById("cell-title");
  const cells = document.querySelectorAll(".matrix button");
  const pressed = (buttons, chosen) => {
    for (const one of buttons) one.setAttribute("aria-pressed", String(one === chosen));
  };
  for (const cell of cells) {
    cell.addEventListener("click", () => {
      pressed(cells, cell);
      let count = 0;
      for (const article of examples.querySelectorAll("article")) {
        article.hidden = article.dataset.cell !== cell.dataset.cell;
        count += article.hidden ? 0 : 1;
      }
      const all = Number(cell.dataset.count);
      title.textContent = `${cell.title}: ${all} examples` + (count < all ? `, ${count} shown` : "");
      examples.hidden = false;
      examples.scrollIntoView({ block: "nearest" });
    });
    cell.dataset.shade = cell.parentElement.className;
    cell.dataset.text = cell.textContent;
  }
  const choice = document.querySelector(".matrix-choice");
  for (const button of choice ? choice.querySelectorAll("button") : []) {
    choice.hidden = false;
    button.addEventListener("click", () => {
      pressed(choice.querySelectorAll("button"), button);
      for (const cell of cells) {
        const share = Number(cell.dataset[button.dataset.show]);
        const counts = button.dataset.show === "count";
        cell.textContent = counts ? cell.dataset.text : share < 0.5 ? "<1" : Math.round(share);
        const level = Math.max(1, Math.round(9 * Math.sqrt(share / 100)));
        cell.parentElement.className = counts ? cell.dataset.shade : cell.dataset.shade[0] + level;
      }
    });
  }
}

// Error browser: search, filters and order; 25 errors at a time.
{
  const form = document.getElementById("filters");
  const list = document.getElementById("errors");
  const more = document.getElementById("more");
  const articles = form ? [...list.querySelectorAll("article")] : [];
  const kinds = new Map(articles.map((one) => [one, JSON.parse(one.dataset.kinds)]));
  const values = {
    label: (one) => [one.dataset.label],
    prediction: (one) => [one.dataset.prediction],
    kind: (one) => kinds.get(one),
  };
  let room = 25;
  const show = () => {
    const wanted = form.elements.search.value.trim().toLowerCase();
    const chosen = Object.keys(values).filter((name) => form.elements[name].value !== "");
    const fits = (one) => one.textContent.toLowerCase().includes(wanted)
      && chosen.every((name) => values[name](one).includes(form.elements[name].value));
    const matching = articles.filter(fits);
    const visible = new Set(matching.slice(0, room));
    for (const one of articles) one.hidden = !visible.has(one);
    form.querySelector("output").textContent = `${matching.length} of ${articles.length} errors`;
    more.hidden = matching.length <= room;
  };
  if (form) {
    for (const [name, of] of Object.entries(values)) {
      const counts = new Map();
      for (const one of articles) for (const value of of(one)) counts.set(value, (counts.get(value) ?? 0) + 1);
      counts.delete("");
      const field = form.elements[name];
      field.add(new Option("all", ""));
      for (const value of [...counts.keys()].sort()) field.add(new Option(`${value} (${counts.get(value)})`, value));
      // Values that hardly repeat, such as answers to questions, are searched rather than chosen.
      field.parentElement.hidden = counts.size === 0 || counts.size > Math.max(8, articles.length / 2);
    }
    form.addEventListener("input", (event) => {
      room = 25;
      if (event.target.name === "order") {
        articles.reverse();
        list.append(...articles);
      }
      show();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    more.querySelector("button").addEventListener("click", () => {
      room += 25;
      show();
    });
    form.hidden = false;
    show();
  }
}
