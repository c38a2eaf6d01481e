"""One thread for BLAS: all of it, SciPy's own too, and only for a while."""

from __future__ import annotations

import subprocess
import sys
import textwrap

SCRIPT = """
    from threadpoolctl import threadpool_info
    from coterie.threads import one_thread

    with one_thread():
        import scipy.linalg  # as a work does that imports what it needs
        print(*[each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"])
    print(*[each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"])
"""


def test_a_library_that_is_first_needed_within_is_limited_too():
    # A process of its own, in which SciPy is not loaded yet; its BLAS and NumPy's would use as many threads as cores.
    environment = {"OPENBLAS_NUM_THREADS": "2", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], env=environment, capture_output=True, text=True, check=True
    )
    within, after = (line.split() for line in done.stdout.splitlines())
    assert set(within) == {"1"}
    assert set(after) == {"2"}
