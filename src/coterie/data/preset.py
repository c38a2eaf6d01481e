"""What is known of a data set with a name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A data set with a name.

    Attributes:
        name: As `load` takes it.
        description: In a line.
        paper: Who uses it so; None: nobody, it is ours.
        settings: How it is made, in a sentence.
        truth: What is known of the true clusters; None: nothing, or there are none.
        clients: How many, by default.
        samples: Training and test examples that are dealt out, for the whole file and seed 0.
        classes: How many; None for targets.
        needs: The files that must be there, or the publishers' files that stand for them (`data.sources`).
        images: The images in `known.IMAGES` that it deals out; None: none.
    """

    name: str
    description: str
    paper: str | None
    settings: str
    truth: str | None
    clients: int
    samples: int
    classes: int | None = 10
    needs: tuple[str, ...] = ()
    images: str | None = None
