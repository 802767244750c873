"use strict";
// A cell of the confusion matrix shows the examples behind it.
const shown = document.getElementById("cell-examples");
const told = document.getElementById("cell-told");
const buttons = document.querySelectorAll(".matrix button");
for (const button of buttons) {
  button.addEventListener("click", () => {
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    let count = 0;
    for (const article of shown.querySelectorAll("article")) {
      article.hidden = article.dataset.cell !== button.dataset.cell;
      count += article.hidden ? 0 : 1;
    }
    const all = Number(button.dataset.count);
    told.textContent = `${button.title}: ${all} examples` + (count < all ? `, ${count} shown` : "");
    shown.hidden = false;
    told.scrollIntoView({ block: "nearest" });
  });
}
