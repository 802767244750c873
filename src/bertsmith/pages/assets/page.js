// Charts: the legend shows the values below the pointer.
"use strict";
for (const svg of document.querySelectorAll(".chart svg")) {
  const figure = svg.closest("figure");
  const cursor = svg.querySelector(".cursor");
  const outputs = figure.querySelectorAll("output");
  const at = figure.querySelector(".at");
  const lines = [...svg.querySelectorAll(".line[data-x]")].map((line) => ({
    places: [...line.points].map((point) => point.x),
    x: line.dataset.x.split(" ").map(Number),
    y: line.dataset.y.split(" ").map(Number),
  }));
  if (!lines.length) continue; // points and intervals have titles instead
  const shown = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const nearest = (places, place) => places.reduce(
    (best, one, number) => (Math.abs(one - place) < Math.abs(places[best] - place) ? number : best), 0);

  svg.addEventListener("pointermove", (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const found = lines.map((line) => nearest(line.places, place));
    const distance = (number) => Math.abs(lines[number].places[found[number]] - place);
    const closest = lines.reduce((best, _, number) => (distance(number) < distance(best) ? number : best), 0);
    const x = lines[closest].places[found[closest]];
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.toggleAttribute("hidden", false);
    lines.forEach((line, number) => {
      outputs[number].textContent = shown(line.y[found[number]]) + svg.dataset.unit;
    });
    at.textContent = at.dataset.label + " " + Math.round(lines[closest].x[found[closest]]).toLocaleString("en");
  });
  svg.addEventListener("pointerleave", () => {
    cursor.toggleAttribute("hidden", true);
    for (const output of outputs) output.textContent = "";
    at.textContent = "";
  });
}
document.documentElement.dataset.ready = "yes";
