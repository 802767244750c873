"""Shards → spans, sentence pairs or crops → masked → packed batches.

Everything is a pure function of (seed, sample): a sample's number determines its text, how it
is cut and what is masked. So the order is the same for any number of workers and ranks,
and a run's position in its data is one number.

    source = Spans(corpus, length=128, seed=0)            # or Pairs(...)
    examples = Examples(source, Masking(tokenizer, seed=0))
    plan = examples.plan(position, tokens=65536, micro_tokens=16384)   # a step's samples, divided
    example = examples.make(plan.micro_batches[0][0])                  # a batch with its targets
"""

from bertsmith.examples.division import Division, divide
from bertsmith.examples.example import Example, Examples, StepPlan
from bertsmith.examples.loader import Loader
from bertsmith.examples.masking import Masking
from bertsmith.examples.sources import Crops, MixedSource, Pairs, SampleSource, Sequences, Spans

__all__ = ["Crops", "Division", "Example", "Examples", "Loader", "Masking", "MixedSource"]
__all__ += ["Pairs", "SampleSource", "Sequences", "Spans", "StepPlan", "divide"]
