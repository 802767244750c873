register("classify", (results, target) => {
  const best = results[0];
  const rows = Object.entries(best.scores).sort((a, b) => b[1] - a[1]);
  if (rows.length === 1) {
    target.append(make("p", { class: "big" }, best.score.toPrecision(4), " ", make("small", {}, best.label)));
    return;
  }
  target.append(make("p", { class: "big" }, best.label, " ", make("small", {}, percent(best.score))));
  target.append(bars(rows.slice(0, 20).map(([name, value]) => ({ name, value }))));
  if (rows.length > 20) target.append(make("p", { class: "soft" }, `and ${rows.length - 20} more`));
});
