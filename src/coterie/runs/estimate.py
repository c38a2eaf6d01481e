"""`estimate` extrapolates time, traffic and memory of a run from its first rounds.

Preparation steps that come between later rounds, as in FL+HC and SR-FCA, are not included.
"""

from __future__ import annotations

import time

from coterie import tree
from coterie.federation.compilation import compilations
from coterie.runs.build import build
from coterie.runs.record import JsonObject
from coterie.runs.spec import Spec, SpecLike
from coterie.runs.summary import peak_rss_bytes
from coterie.seeds import Seed

#: Number of rounds that are run; the first two include compilation.
TRIAL_ROUNDS = 4


class _Clock:
    """Stopwatch that excludes compilation time from laps and adds it up in `compiled`."""

    def __init__(self) -> None:
        self.compiled = 0.0
        self._last = time.perf_counter(), compilations().seconds

    def lap(self) -> float:
        """Return the seconds since the last lap, without compilation."""
        before, self._last = self._last, (time.perf_counter(), compilations().seconds)
        passed, compiling = (now - then for now, then in zip(self._last, before, strict=True))
        compiling = min(compiling, passed)  # several threads may compile at the same time
        self.compiled += compiling
        return passed - compiling


def estimate(spec: SpecLike | None = None) -> JsonObject:
    """Estimate seconds, bytes and memory of a run from its first rounds.

    Args:
        spec: Nested dicts, the path of a TOML file, or a Spec.
    """
    clock = _Clock()
    built = build(Spec.of(spec))
    session, settings = built.session, built.spec.run
    set_up = clock.lap()
    preparing, spent = 0.0, []
    for step in session.steps(min(TRIAL_ROUNDS, settings.rounds)):
        if step.stage == "prepare":
            preparing += clock.lap()
        else:
            spent.append(clock.lap())
    rounds = min(settings.rounds, session.t) if session.stage == "done" else settings.rounds
    evaluations = -(-rounds // settings.evaluate_every)
    session.evaluate()
    clock.lap()  # the first evaluation includes tracing
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
            "set_up": round(set_up, 3),
            "preparing": round(preparing, 3),
            "compile": round(clock.compiled, 3),
            "round": round(per_round, 5),
            "scoring": round(scoring, 5),
            "total": round(set_up + preparing + clock.compiled + rounds * per_round + evaluations * scoring, 2),
        },
        "traffic": {"down_bytes": total["down"], "up_bytes": total["up"]},
        "peak_rss_bytes": peak_rss_bytes(),
        "tried_rounds": len(spent),
    }
