"""The error without PyTorch; these tests do not need PyTorch."""

from __future__ import annotations

import sys

import pytest

import coterie
from coterie.errors import SpecError


def test_without_pytorch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # makes the import fail
    with pytest.raises(SpecError, match=r"pip install 'coterie\[torch\]'"):
        coterie.torch.task(None, None, shape=(2,), classes=2)
    with pytest.raises(SpecError, match=r"pip install 'coterie\[torch\]'"):
        coterie.torch.load(None, {})


def test_a_star_import_does_not_hide_pytorch():
    assert "torch" not in coterie.__all__
    assert coterie.torch.__all__ == ["load", "task"]
