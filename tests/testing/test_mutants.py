"""The contract suite accepts a correct method, and refuses every method that differs from it by one error."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

from coterie.errors import Error
from coterie.testing import CHECKS, Harness, contract

spec = importlib.util.spec_from_file_location("mutants", Path(__file__).with_name("mutants.py"))
mutants = sys.modules.setdefault("mutants", importlib.util.module_from_spec(spec))
spec.loader.exec_module(mutants)

#: Mutant → the check that refuses it, and a part of the sentence.
REFUSED = {
    "ClaimsTheWholeCohort": (
        "a_lost_reply_is_like_an_absent_client",
        r"Round\.assignment of round t=1 has client '\d'",
    ),
    "ReportsLostDistances": ("a_lost_reply_is_like_an_absent_client", r"Round\.distances of round t=1 has client '\d'"),
    "NumbersClustersByPosition": (
        "a_lost_reply_is_like_an_absent_client",
        r"clusters of the other clients differ .* index by replies\.clients, not by the cohort",
    ),
    "DrawsClustersByPosition": (
        "a_lost_reply_is_like_an_absent_client",
        r"clusters of the other clients differ .* index by replies\.clients, not by the cohort",
    ),
    "DividesByTheCohort": (
        "a_lost_reply_is_like_an_absent_client",
        r"the state differs by .* weights and means must be those of the replies",
    ),
    "WeightsByPosition": (
        "a_lost_reply_is_like_an_absent_client",
        r"the state differs by .* weights and means must be those of the replies",
    ),
    "UsesOldReplies": (
        "a_lost_reply_is_like_an_absent_client",
        r"the state differs by .* weights and means must be those of the replies",
    ),
    "ChangesRepliesInPlace": ("leaves_its_arguments_alone", "changes an array of its state or of a reply in place"),
    "ChangesItsStateInPlace": ("leaves_its_arguments_alone", "changes an array of its state or of a reply in place"),
    "SaysSkippedAndMoves": (
        "tolerates_faults",
        r"round t=1 is reported as skipped \(too few clients\), and the models in the state changed",
    ),
    "MovesWithoutReplies": ("a_round_without_replies_changes_nothing", "the state changed without replies"),
    "AsksEveryone": (
        "asks_only_the_clients_of_the_round",
        r"the work 'fit' is asked of clients that are not available: \['8', '9'\]",
    ),
    "AsksAllAvailableClients": (
        "asks_only_the_clients_of_the_round",
        "in round t=0 the work 'losses_of' is asked of clients outside the cohort",
    ),
    "TrainsOnTestData": ("tolerates_faults", "Work 'fit' was asked for test examples"),
    "PlacesByTestData": ("places_every_client", "Work 'losses_of' was asked for test examples"),
    "IgnoresStragglers": ("asks_only_the_clients_of_the_round", r"the straggler '\d' trains completely in round t=0"),
    "TrainsOnTheSameBatches": (
        "asks_only_the_clients_of_the_round",
        r"client '\d' trains with the same seed in rounds t=0 and t=1, on the same batches",
    ),
    "NeverTrains": ("learns", r"after 3 rounds the mean test loss is .* The method must train"),
    "ServesZeros": ("learns", r"the mean test loss is 1\.099; .* that of a constant prediction 1\.099"),
    "TrainsAwayFromTheMinimum": ("learns", r"after 3 rounds the mean test loss is"),
    "KeepsStateOnTheObject": ("leaves_its_arguments_alone", "the method object changed in the run: rounds"),
    "KeepsStateOnTheClass": ("leaves_its_arguments_alone", "the method object changed in the run: seen"),
    "DrawsFromNumpy": ("same_seed_same_bytes", r"draws from numpy\.random or random"),
    "DrawsFromPython": ("same_seed_same_bytes", r"draws from numpy\.random or random"),
    "DrawsFromAnUnseededGenerator": ("same_seed_same_bytes", "draws from a generator without a seed"),
    "ReadsTheClock": ("same_seed_same_bytes", "reads the clock"),
    "DependsOnTheOrderOfASet": ("same_seed_same_bytes", "depends on the order of a set of clients"),
    "KeepsStateInTheModule": ("same_seed_same_bytes", "keeps values outside of its state"),
    "DependsOnTheOrderOfADict": ("resumes_after_any_step", "the run differs if it is saved and restored after step 1"),
    "NeverFinishesPreparing": ("tolerates_faults", "after 100 preparation steps `stage` still returns 'prepare'"),
    "ReadsTheTruth": ("same_seed_same_bytes", r"uses the true clusters; declare the field with from_run\('truth'\)"),
    "ReachesIntoTheFederation": (
        "asks_only_the_clients_of_the_round",
        "The method uses the attribute '_transport' of the federation",
    ),
    "StoresAGenerator": ("tolerates_faults", r"must return a state of plain data .*value\.more is a Generator"),
    "StoresAJaxArray": ("tolerates_faults", r"must return a state of plain data .*value\.more is a ArrayImpl"),
    "ServesRowsOutsideTheBank": ("places_every_client", r"row [23]; the bank has rows 0 to 1"),
    "ForgetsNewcomers": ("places_every_client", r"`place` has no model for the clients \['8', '9'\]"),
    "HasNoFallback": (
        "places_every_client",
        r"Placement\.fallback of method HasNoFallback must be one model.*got none",
    ),
    "FallbackIsABank": ("places_every_client", r"Placement\.fallback of method FallbackIsABank must be one model"),
    "FallbackIsNotFinite": ("places_every_client", r"Placement\.fallback is not finite"),
    "BankHasAnotherShape": ("places_every_client", r"Placement\.(bank|fallback)"),
    "PlacesByPosition": (
        "places_every_client",
        "client '2' is served row 0 if all clients are placed, and row 1 if half",
    ),
    "NeedsRepliesToPlace": ("places_every_client", r"`place` fails if no client replies, as with run\.score_with"),
    "ForgetsPaidPlacements": ("keeps_paid_placements", r"run 'fit' again to be placed"),
}

#: Classes that are no mutants.
ABSTRACT = {"State", "Reference", "ScalesRandomly", "ChangesPlacement"}


def made(name, given):
    kind = getattr(mutants, name)
    return kind(truth=given["truth"]) if name == "ReadsTheTruth" else kind()


def test_every_mutant_is_tested():
    classes = {name for name, kind in inspect.getmembers(mutants, inspect.isclass) if kind.__module__ == "mutants"}
    assert classes - ABSTRACT == set(REFUSED)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_correct_method_passes(check):
    check(Harness(lambda given: mutants.Reference()))


@pytest.mark.parametrize("name", REFUSED)
def test_a_method_with_one_error_is_refused_with_a_sentence(name):
    check, sentence = REFUSED[name]
    # A violation of the protocol is refused by the run itself; everything else by an assertion of the check.
    with pytest.raises((AssertionError, AttributeError, Error), match=sentence):
        getattr(contract, check)(Harness(lambda given: made(name, given)))
