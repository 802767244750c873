"""The methods of all uses in one class. methods.pyi is what editors and type checkers read."""

from bertsmith.tasks.registry import USES
from bertsmith.tasks.use import Askable

own = dict.fromkeys(use.Methods for use in USES.values() if use.Methods is not Askable)
Methods = type("Methods", (*own, Askable), {"__doc__": __doc__})
