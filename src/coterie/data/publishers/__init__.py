"""Data sets in the form in which their publishers hand them out: which files, from where, and how they are read.

`listing` says which files there are, where they are looked for and from where they can be had; `downloading` gets
them; the other modules read their formats. Nothing in a file is ever run or unpacked to disk: archives are read member
by member, and pickles by a reader that knows numbers, texts, lists, dicts and arrays of bytes, and refuses the rest.
"""

from __future__ import annotations
