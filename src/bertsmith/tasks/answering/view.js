register("answer", (found, target, values) => {
  if (!found.length) { target.append(make("p", { class: "soft" }, "There is no answer.")); return; }
  const best = make("p", { class: "big" }, found[0].text || "No answer", " ", make("small", {}, percent(found[0].score)));
  let passage = marked(values.passage, [found[0]]);
  target.append(best, passage, make("h3", {}, "Best answers"), bars(found.map((one) => ({ name: one.text || "no answer", value: one.score })), (number) => {
    const next = marked(values.passage, [found[number]]);
    passage.replaceWith(next);
    passage = next;
  }));
});
