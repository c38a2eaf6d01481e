"""`python -m coterie` is the command line."""

import subprocess
import sys


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "coterie", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Usage: coterie " in done.stdout
