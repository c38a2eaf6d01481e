"""The side of a peer: reads requests from standard input, runs one round for each, and answers with its time.

A request and its answer are lines of JSON; answers begin with `ANSWER`, because libraries print lines of their own.
"""

from __future__ import annotations

import json
import sys
import time
from functools import lru_cache

import numpy as np

ANSWER = "ANSWER "


@lru_cache
def clients(file):
    """The examples (x, y) of each client."""
    with np.load(file) as archive:
        return [(archive[f"x{i}"], archive[f"y{i}"]) for i in range(len(archive.files) // 2)]


def steps(request):
    """SGD steps of a round in which the last batch of each epoch may be smaller."""
    return request["epochs"] * sum(-(-len(y) // request["batch_size"]) for _, y in clients(request["clients"]))


def seconds(function, *args):
    begin = time.perf_counter()
    function(*args)
    return time.perf_counter() - begin


def serve(one_round):
    """Answer requests until standard input ends.

    Args:
        one_round: Request → seconds and number of steps.
    """
    for line in sys.stdin:
        took, number = one_round(json.loads(line))
        print(ANSWER + json.dumps({"seconds": took, "steps": number}), flush=True)
