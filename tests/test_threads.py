"""`one_thread` limits the BLAS of NumPy and of SciPy."""

from __future__ import annotations

import subprocess
import sys
import textwrap

SCRIPT = """
    from threadpoolctl import threadpool_info
    from coterie.threads import one_thread

    with one_thread():
        import scipy.linalg  # imported inside the block, as works do
        print(*[each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"])
    print(*[each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"])
"""


def test_a_library_loaded_inside_the_block_is_limited():
    # A new process, in which SciPy is not loaded yet. By default its BLAS and NumPy's use one thread per core.
    environment = {"OPENBLAS_NUM_THREADS": "2", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], env=environment, capture_output=True, text=True, check=True
    )
    within, after = (line.split() for line in done.stdout.splitlines())
    assert set(within) == {"1"}
    assert set(after) == {"2"}
