"""Builds the documentation site: `make docs`.

paths.py           where sources, intermediate files and the site are
__main__.py        the steps in their order, with progress
pages.py           all pages that need no run
staging.py         copies the pages of docs/, and adds the files of the project that they link to
method_pages.py    a page per method: written text, figure, settings, card, notes of the docstring
methods_table.py   the table that compares the methods
demonstration.py   the recorded runs that the figures show
figures.py         figures of the methods
pictures.py        pictures of the explanations
drawing.py         one style for both, and files for light and dark pages
tutorials.py       tutorials: percent scripts, run cell by cell, with their output in the page
cells.py           runs the cells of one script; a program of its own, which needs the standard library only
reference.py       settings, commands and API
equations.py       typesets equations with KaTeX
links.py           finds broken links and anchors
fences.py          blocks of code in the pages, for the tests

The steps write Markdown to build/docs/pages; Zensical turns it into the site (docs/mkdocs.yml).
"""
