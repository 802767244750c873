register("choose", (results, target, values) => {
  const choices = lines(values.choices);
  target.append(make("p", { class: "big" }, results.text));
  target.append(bars(results.scores.map((value, number) => ({ name: choices[number], value })).sort((a, b) => b.value - a.value)));
});
