"""What `load` knows by name: where each data set is from, what is known of its true clusters, and what it needs.

Nothing here is loaded; numbers of clients and examples are those of the default options and of seed 0 on the whole
data set. A preset that stands on a file with a subset keeps its clients and has fewer examples.
"""

from __future__ import annotations

from typing import Any

from coterie.data import sources
from coterie.data.known import IMAGES, Images
from coterie.data.listing import by_labels, by_paper, by_person, embedded, synthetic
from coterie.data.preset import Preset
from coterie.data.texts import by_text, source_of
from coterie.errors import DataError, SpecError, unknown

#: Name → what is known of it.
PRESETS: dict[str, Preset] = {
    preset.name: preset
    for group in (embedded(), synthetic(), by_paper(), by_person(), by_text(), by_labels())
    for preset in group
}


def at_hand(name: str) -> bool:
    """Whether the files that a data set needs are there."""
    if name not in PRESETS:
        raise SpecError(unknown("data set", name, PRESETS))
    return all(sources.found(file) is not None for file in PRESETS[name].needs)


def catalog() -> list[dict[str, Any]]:
    """What there is, without loading it: of files that are at hand only the headers are read.

    Returns:
        For each data set its name, description, paper, settings, truth, clients, samples, classes, needs (files),
        source (a sentence, which tells whether an archive holds a subset, or that publishers' files are there),
        at_hand, and advice (how to get what is not, or all of it). Samples are those of the default options and seed
        0, fewer in proportion where the archive at hand holds a subset.
    """
    return [_entry(preset) for preset in PRESETS.values()]


def _entry(preset: Preset) -> dict[str, Any]:
    source, share = "drawn by a seed", 1.0
    if preset.images is not None:
        source, share = _images(preset, IMAGES[preset.images])
    elif preset.needs:
        source = source_of(preset)
    elif preset.name == "digits":
        source = "scikit-learn"
    missing = [file for file in preset.needs if sources.found(file) is None]
    advice = [sources.advice(file) for file in missing]
    if preset.images is not None and share < 1 and not missing:
        advice = [sources.whole(IMAGES[preset.images].file)]
    return {
        "name": preset.name,
        "description": preset.description,
        "paper": preset.paper,
        "settings": preset.settings,
        "truth": preset.truth,
        "clients": preset.clients,
        "samples": round(preset.samples * share),
        "classes": preset.classes,
        "needs": list(preset.needs),
        "source": source,
        "at_hand": not missing,
        "advice": "; ".join(advice),
    }


def _images(preset: Preset, images: Images) -> tuple[str, float]:
    """Where the images of a preset come from, and which share of what was published is there."""
    found = {file: sources.found(file) for file in preset.needs}
    source, share = f"{images.title}, from {images.file}", 1.0
    origin = found[images.file]
    if origin is not None:
        try:
            source, share = images.text(origin), images.share(origin)
        except DataError as error:  # a list is no place to fail
            source = str(error)
    return source + "".join(f" and {found[file] or file}" for file in found if file != images.file), share
