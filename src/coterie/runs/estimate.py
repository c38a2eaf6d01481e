"""What a run will cost, before it is run: a few rounds are played and the rest is counted up from them.

Preparing that comes between later rounds, as in FL+HC and SR-FCA, is not in it.
"""

from __future__ import annotations

import time
from typing import Any

from coterie import tree
from coterie.federation.compilation import compilations
from coterie.runs.build import build
from coterie.runs.spec import Spec
from coterie.runs.summary import peak_rss_bytes
from coterie.seeds import Seed

#: Rounds that are played to find out; the first two also compile.
TRIED = 4


class _Clock:
    """Seconds from one look to the next, without those that compiling took: these add up in `compiled`."""

    def __init__(self) -> None:
        self.compiled = 0.0
        self._seen = time.perf_counter(), compilations().seconds

    def lap(self) -> float:
        """Seconds since the last look."""
        before, self._seen = self._seen, (time.perf_counter(), compilations().seconds)
        passed, compiling = (now - then for now, then in zip(self._seen, before, strict=True))
        compiling = min(compiling, passed)  # several threads may compile at a time
        self.compiled += compiling
        return passed - compiling


def estimate(spec: Spec) -> dict[str, Any]:
    """Seconds, bytes and memory of a spec, from a few of its rounds on its own data."""
    clock = _Clock()
    tried = min(TRIED, spec.run.rounds)
    built = build(spec)
    session = built.session
    ready = clock.lap()
    while session.stage == "prepare":
        session.step()
    preparing = clock.lap()
    spent = []
    for _ in range(tried):
        if session.stage == "done":
            break
        session.step()
        spent.append(clock.lap())
    rounds = min(built.spec.run.rounds, session.t) if session.stage == "done" else built.spec.run.rounds
    scorings = -(-rounds // built.spec.run.evaluate_every)
    session.evaluate()
    clock.lap()  # the first one also traces
    session.evaluate()
    scoring = clock.lap()
    per_round = min(spent) if spent else 0.0
    before = {way: session.traffic.total(way, t=-1) for way in ("down", "up")}
    sent = {way: session.traffic.total(way) - before[way] for way in ("down", "up")}
    total = {way: before[way] + sent[way] * rounds // max(session.t, 1) for way in sent}
    return {
        "spec": built.spec.to_dict(),
        "clients": len(session.clients),
        "parameters": session.parameters,
        "model_bytes": tree.nbytes(built.task.init(Seed(0))),
        "rounds": rounds,
        "seconds": {
            "set_up": round(ready, 3),
            "preparing": round(preparing, 3),
            "compile": round(clock.compiled, 3),
            "round": round(per_round, 5),
            "scoring": round(scoring, 5),
            "total": round(ready + preparing + clock.compiled + rounds * per_round + scorings * scoring, 2),
        },
        "traffic": {"down_bytes": total["down"], "up_bytes": total["up"]},
        "peak_rss_bytes": peak_rss_bytes(),
        "tried_rounds": len(spent),
    }
