"""The first five minutes: text → vocabulary → a small BERT → two fine-tuned models → one page.

Before that, a look at the trained model that comes with the package.

    run(Path("demo"), None, FULL, console)

Everything goes through the same functions that a person calls; the room adds text that every
Python installation carries, labels that this text carries by itself, and a story to look at.
"""
