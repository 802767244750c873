"""Labelled spans of a text that may overlap or lie in one another."""
