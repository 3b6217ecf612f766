"""What the bits of a result depend on."""

from __future__ import annotations

from shoal.runs.versions import versions, versions_for_bits
from shoal.version import __version__


def test_networks_of_another_version_of_shoal_are_others() -> None:
    """Workers with one are refused, and a journal's networks of one are trained again."""
    found = versions_for_bits()
    assert found["shoal"] == __version__
    assert found.keys() == versions().keys() - {"python", "instruction set"}
