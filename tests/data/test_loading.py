"""Data by name."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import DATASETS, load
from coterie.data.loading import loader_options
from coterie.errors import DataError, SpecError


@pytest.mark.parametrize("name", DATASETS)
def test_every_name_loads_with_a_few_clients_and_carries_its_source(tiny, name):
    data = load(name, clients=8)
    assert data.name == name
    assert len(data.clients) == 8
    assert data.source


@pytest.mark.parametrize("name", DATASETS)
def test_every_name_has_a_line_of_description_and_options_with_defaults(name):
    assert DATASETS[name]
    assert "\n" not in DATASETS[name]
    assert {"clients", "seed"} <= set(loader_options(name))


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(SpecError, match=r"No data set 'digit'\. Did you mean 'digits'\? Known: blobs, "):
        load("digit")


def test_an_unknown_option_is_refused_with_a_suggestion():
    with pytest.raises(SpecError, match=r"No option of digits 'client'\. Did you mean 'clients'\? Known: alpha, "):
        load("digits", client=3)


@pytest.mark.parametrize("path", ["./nothing", "some/where.csv", ".hidden"])
def test_what_looks_like_a_path_is_looked_for_on_disk(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="There is no file or folder"):
        load(path)


def test_a_bare_name_that_exists_on_disk_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "a.npz", x=np.zeros((3, 2)), y=np.zeros(3, int))
    assert load("mine").clients == ("a",)
    assert load(tmp_path / "mine", test_share=0).sizes("fit").tolist() == [3]
    with pytest.raises(SpecError, match=r"No option of a folder 'share'\. Did you mean 'test_share'\?"):
        load("mine", share=3)


def test_a_known_name_wins_over_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert load("digits").classes == 10
