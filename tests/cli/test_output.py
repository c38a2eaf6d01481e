"""Formats of numbers, counts and sizes."""

from __future__ import annotations

import pytest

from coterie.cli import output


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (output.percent(0.1234), "12.3"),
        (output.percent(0.1234, 0.01), "12.3 ± 1.0"),
        (output.percent(None), "–"),
        (output.number(1.2345, "2f"), "1.23"),
        (output.number(1.2345, "4g", 0.5), "1.234 ± 0.5"),
        (output.number(None, "2f"), "–"),
        (output.size(None), "–"),
        (output.size(999), "999 B"),
        (output.size(1_500), "1.5 kB"),
        (output.size(2_500_000), "2.5 MB"),
        (output.size(3_210_000_000), "3.21 GB"),
        (output.duration(0.0123), "12.3 ms"),
        (output.duration(61.25), "61.2 s"),
        (output.duration(125), "2 min 05 s"),
        (output.duration(3_720), "1 h 02 min"),
        (output.plural(1, "round"), "1 round"),
        (output.plural(1000, "round"), "1,000 rounds"),
        (output.cluster_sizes([10, 0, 5]), "2 (10, 5 clients; 1 empty)"),
        (output.cluster_sizes([1] * 21), "21 (" + "1, " * 20 + "… clients)"),
    ],
)
def test_formats(shown, expected):
    assert shown == expected


FINGERPRINT = "12:AB:CD:34"


def test_text_and_tables_keep_the_bytes_that_name_emoji(capsys):
    shown = output.facts()
    shown.add_row("key", FINGERPRINT)
    output.result(FINGERPRINT, shown)
    output.line(FINGERPRINT)
    printed = capsys.readouterr()
    assert [line.strip() for line in printed.out.splitlines()] == [FINGERPRINT, f"key  {FINGERPRINT}"]
    assert printed.err == f"{FINGERPRINT}\n"
