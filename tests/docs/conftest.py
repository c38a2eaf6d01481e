"""The builder of the documentation site can be imported."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

if str(ROOT / "docs") not in sys.path:
    sys.path.append(str(ROOT / "docs"))
