"""Data by name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from coterie.data import load
from coterie.errors import DataError, SpecError


def test_importing_the_package_imports_no_loader_and_no_heavy_module():
    code = (
        "import sys, coterie.data;"
        "print(sorted(m for m in sys.modules if m.startswith('coterie.data.datasets.')),"
        " sorted({'sklearn', 'scipy', 'requests', 'filelock', 'jax', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[] []\n", done.stderr


def test_an_unknown_name_is_rejected_with_a_suggestion():
    with pytest.raises(SpecError, match=r"No data set 'digit'\. Did you mean 'digits'\? Known: blobs, "):
        load("digit")


def test_a_file_that_does_not_exist_is_named_with_the_one_beside_it(tmp_path, monkeypatch):
    (tmp_path / "patients.csv").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=r"There is no file or folder 'patients.cvs'\. Did you mean 'patients\.csv'\?"):
        load("patients.cvs")


def test_an_unknown_option_is_rejected_with_a_suggestion():
    with pytest.raises(SpecError, match=r"No option of digits 'client'\. Did you mean 'clients'\? Known: alpha, "):
        load("digits", client=3)


@pytest.mark.parametrize(
    "path", ["./nothing", "some/where.csv", ".hidden", "nosuch.csv", "nosuch.csv.gz", "nosuch.TSV", "nosuch.parquet"]
)
def test_a_name_that_looks_like_a_path_is_a_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="There is no file or folder"):
        load(path)


def test_a_name_that_exists_on_disk_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "a.npz", x=np.zeros((3, 2)), y=np.zeros(3, int))
    assert load("mine").clients == ("a",)
    assert load(tmp_path / "mine", test_share=0).sizes("fit").tolist() == [3]
    with pytest.raises(SpecError, match=r"No option of a folder 'share'\. Did you mean 'test_share'\?"):
        load("mine", share=3)


def test_a_data_set_has_priority_over_a_file_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert load("digits").classes == 10
