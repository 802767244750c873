register("tag", (results, target, values) => {
  const found = results[0];
  const kinds = [...new Set([...model().labels.map((label) => label.replace(/^[BIESLU]-/, "")), ...found.map((one) => one.label)])];
  target.append(marked(values.inputs, found.map((one) => ({ ...one, note: one.label, color: kinds.indexOf(one.label) }))));
  target.append(found.length
    ? bars(found.slice(0, 30).map((one) => ({ name: `${one.text} · ${one.label}`, value: one.score })))
    : make("p", { class: "soft" }, "No entity was found."));
});
