"""The demo: text → vocabulary → a small BERT → two fine-tuned models → one page.

Before that, a look at the trained model that comes with the package.

    run(Path("demo"), None, FULL, console)

The demo calls the package's public functions. This room adds text that every Python installation
has, labels that are derived from this text, and the page.
"""
