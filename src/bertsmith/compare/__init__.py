"""Compare variants under one budget: scores with their uncertainty, in one report.

compare(load_spec("family", ["corpus=corpus"]), "out")     # out/results.json, out/report.html
"""

from bertsmith.compare.run import compare
from bertsmith.compare.spec import Spec, load_spec, spec_names

__all__ = ["Spec", "compare", "load_spec", "spec_names"]
