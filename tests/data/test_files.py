"""Where files are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.data import files, load
from coterie.errors import DataError


def test_the_named_folder_comes_first_and_the_cache_second(folders):
    cache = folders / "cache" / "coterie" / "data"
    assert files.folders() == [folders / "data", cache]
    cache.mkdir(parents=True)
    (cache / "a.npz").touch()
    assert files.find("a.npz") == cache / "a.npz"
    (folders / "data" / "a.npz").touch()
    assert files.find("a.npz") == folders / "data" / "a.npz"


def test_without_settings_the_cache_is_in_the_home_folder(monkeypatch):
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/someone")
    assert files.folders() == [Path("/home/someone/.cache/coterie/data")]


def test_a_missing_file_is_named_with_the_variable_and_the_places(folders):
    with pytest.raises(DataError) as caught:
        load("chars74k")
    places = (str(folders / "data"), str(folders / "cache" / "coterie" / "data"))
    for part in ("chars74k_hnd.npz", "COTERIE_DATA", *places):
        assert part in str(caught.value)
    assert "it is not set" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_variable_that_names_no_folder_is_warned_of_once(folders, monkeypatch, caplog):
    monkeypatch.setenv("COTERIE_DATA", str(folders / "typo"))
    for _ in range(2):
        assert files.found("a.npz") is None
    assert caplog.messages == [f"COTERIE_DATA names {folders / 'typo'}, and there is no such folder"]


def test_a_variable_that_is_not_set_is_said_to_be_so(folders, monkeypatch):
    monkeypatch.delenv("COTERIE_DATA")
    with pytest.raises(DataError, match=r"COTERIE_DATA \(it is not set\)"):
        files.find("svhn.npz")
