"""Fed-MEx: exercises on a pressure mat, a client for each of 30 people.

Palihawadana et al., "FedSim: Similarity Guided Model Aggregation for Federated Learning", Neurocomputing 2022, from MEx
(Wijekoon et al. 2020): five pictures of 16×16 pressures from five seconds, scaled by the recording's largest; seven
exercises, of which each person has two, or one if it was drawn twice. The published split is kept: 934 examples for
training, which the paper calls the number of all, and 250 for testing. Where only the archive with the published test
part is at hand, its 250 examples are split instead, 80/20 for each person: too few for any result.
"""

from __future__ import annotations

from coterie.data.federated import FederatedData, Index
from coterie.data.pools import pool
from coterie.data.writers import by_writer


def fed_mex(*, clients: int = 0, test_share: float = 0.2, seed: int = 0) -> FederatedData:
    """The people, by their numbers in MEx.

    Args:
        clients: How many people, drawn at random; 0 for all 30.
        test_share: Share of each one's examples for testing, where only the published test part is at hand.
        seed: Fixes every draw.
    """
    held = pool("fed-mex")
    own, ids = by_writer(held.columns["client"], clients, seed, "people")
    names = held.called("client", ids)
    if held.train == 0:
        return held.dealt("fed-mex", own, test_share=test_share, seed=seed, clients=names)
    each = [own.of(i) for i in range(len(own))]
    fit = Index.from_lists([numbers[numbers < held.train] for numbers in each])
    tested = Index.from_lists([numbers[numbers >= held.train] - held.train for numbers in each])
    return held.dealt("fed-mex", fit, tested, seed=seed, clients=names)
