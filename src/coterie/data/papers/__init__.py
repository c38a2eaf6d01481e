"""Data sets as papers deal them out, one file a paper; `coterie.data.presets` lists them."""
