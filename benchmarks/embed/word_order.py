"""Do vectors know word order and negation? A small test set, written for this purpose.

    python benchmarks/embed/word_order.py bertsmith-embed minilm=FOLDER mpnet=FOLDER

ORDER has 20 pairs of the same words in another order, which say different things: their vectors
should differ (a cosine below 0.999; equal but for rounding would be 1). MEANING has 30 triples of a
sentence, its negation and a paraphrase with a synonym: the negation should change the vector more
than the synonym does. Nothing is chosen by these sentences. Results are added to --out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

SAME = 0.999  # a cosine above which two vectors count as equal
ORDER = """dog bites man|man bites dog
The teacher praised the student.|The student praised the teacher.
Paris lies north of Lyon.|Lyon lies north of Paris.
The cat chased the mouse.|The mouse chased the cat.
Only Anna eats fish.|Anna eats only fish.
The bank sued the city.|The city sued the bank.
She was happy, not sad.|She was sad, not happy.
Rain follows wind.|Wind follows rain.
The old man saw the young woman.|The young man saw the old woman.
Tea is better than coffee.|Coffee is better than tea.
The red car hit the blue truck.|The blue car hit the red truck.
He left before she arrived.|She left before he arrived.
Ten is greater than nine.|Nine is greater than ten.
The hunter feared the bear.|The bear feared the hunter.
First add water, then flour.|First add flour, then water.
The buyer paid the seller.|The seller paid the buyer.
Smoking causes cancer.|Cancer causes smoking.
The drug raised pressure and lowered pulse.|The drug lowered pressure and raised pulse.
Peter gave Mary a book.|Mary gave Peter a book.
The flight goes from Rome to Oslo.|The flight goes from Oslo to Rome."""
MEANING = """The film was good.|The film was not good.|The movie was good.
She likes dogs.|She does not like dogs.|She loves dogs.
The shop is open today.|The shop is not open today.|The store is open today.
He bought a car.|He did not buy a car.|He purchased a car.
The test was easy.|The test was not easy.|The exam was easy.
The doctor helped the child.|The doctor did not help the child.|The physician helped the child.
The medicine works.|The medicine does not work.|The drug works.
They began on time.|They never began on time.|They started on time.
I can hear the rain.|I cannot hear the rain.|I am able to hear the rain.
The answer is correct.|The answer is not correct.|The answer is right.
The house is large.|The house is not large.|The house is big.
The train is fast.|The train is not fast.|The train is quick.
He often speaks in public.|He never speaks in public.|He frequently speaks in public.
The child is ill.|The child is not ill.|The child is sick.
The room was quiet.|The room was not quiet.|The room was silent.
The vaccine prevents it.|The vaccine does not prevent it.|The vaccine averts it.
We need help.|We need no help.|We require help.
The street is safe at night.|The street is not safe at night.|The road is safe at night.
Her plan succeeded.|Her plan did not succeed.|Her plan worked.
The water is cold.|The water is not cold.|The water is chilly.
The company reported a profit.|The company reported no profit.|The firm reported a profit.
He finished the work.|He has not finished the work.|He completed the work.
The weather is nice.|The weather is not nice.|The weather is pleasant.
The lawyer told the truth.|The lawyer did not tell the truth.|The attorney told the truth.
The picture is beautiful.|The picture is not beautiful.|The picture is lovely.
The bridge was built here.|The bridge was not built here.|The bridge was constructed here.
The gene affects growth.|The gene does not affect growth.|The gene influences growth.
The boy is clever.|The boy is not clever.|The boy is smart.
The engine made a noise.|The engine made no noise.|The motor made a noise.
The city permits parking.|The city does not permit parking.|The city allows parking."""


def score(model: str) -> dict[str, Any]:
    """How many pairs of each kind a model tells apart as it should, and the mean cosines."""
    import bertsmith as bs

    bert = bs.load(model, device="cpu")

    def cosines(table: str) -> Any:
        rows = [line.split("|") for line in table.splitlines()]
        first, *others = (
            bert.embed(list(column), normalise=True) for column in zip(*rows, strict=True)
        )
        return [(first * other).sum(1) for other in others]

    [order], [negated, synonym] = cosines(ORDER), cosines(MEANING)
    return {
        "orders told apart": int((order < SAME).sum()),
        "of": len(order),
        "mean cosine of other orders": round(float(order.mean()), 4),
        "dog bites man": round(float(order[0]), 4),
        "negations further than synonyms": int((negated < synonym).sum()),
        "of triples": len(negated),
        "mean cosine of negations": round(float(negated.mean()), 4),
        "mean cosine of synonyms": round(float(np.mean(synonym)), 4),
    }


def main() -> None:
    """Score the models, and store the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="NAME[=FOLDER]")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/word_order.json"))
    given = parser.parse_args()
    results = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
    for model in given.models:
        name, _, folder = model.partition("=")
        results[name] = score(folder or name)
        print(name, json.dumps(results[name]))
    given.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
