// A cell of the confusion matrix shows the examples behind it.
const examples = document.getElementById("cell-examples");
const title = document.getElementById("cell-title");
const buttons = document.querySelectorAll(".matrix button");
for (const button of buttons) {
  button.addEventListener("click", () => {
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    let count = 0;
    for (const article of examples.querySelectorAll("article")) {
      article.hidden = article.dataset.cell !== button.dataset.cell;
      count += article.hidden ? 0 : 1;
    }
    const all = Number(button.dataset.count);
    title.textContent = `${button.title}: ${all} examples` + (count < all ? `, ${count} shown` : "");
    examples.hidden = false;
    examples.scrollIntoView({ block: "nearest" });
  });
}
