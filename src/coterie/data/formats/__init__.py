"""Readers of file formats: archives of arrays, publishers' formats, tables, and text as token ids.

Nothing in a file is executed or unpacked to disk: archives are read member by member, and pickles by a reader that
knows numbers, strings, lists, dicts and arrays of bytes and rejects everything else.
"""
