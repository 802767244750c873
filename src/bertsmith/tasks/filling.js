register("fill-mask", (results, target) => {
  const guesses = results[0];
  const count = Math.max(...guesses.map((guess) => guess.mask)) + 1;
  for (let number = 0; number < count; number++) {
    const own = guesses.filter((guess) => guess.mask === number);
    if (count > 1) target.append(make("h3", {}, `Mask ${number + 1}`));
    target.append(bars(own.map((guess) => ({ name: guess.token, value: guess.score }))));
  }
  target.append(make("p", { class: "soft" }, guesses[0].text));
}, (values) => values.inputs.includes(mask()) || `Write ${mask()} where a word is missing.`);
