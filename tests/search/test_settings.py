"""settings.json of a search."""

import pytest

from shoal.search.results import run_files


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "shoal-run", "version": 9}', '{"format": "shoal-run", "version": 1}']
)
def test_settings_that_are_not_whole_are_refused(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ValueError, match=r"settings\.json"):
        run_files.read_settings(tmp_path)
