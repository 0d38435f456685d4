"""An archive gives back what was put into it, and refuses what it could not."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.archives import MARKER, parse_archive, render_archive

NAMES = some.text("abc/._-0123", min_size=1)
TEXTS = some.text().map(lambda text: text.replace("\r", "") + "\n").filter(lambda text: not MARKER.search(text))


@given(some.dictionaries(NAMES, TEXTS, min_size=1))
def test_files_come_back_as_they_were(files):
    assert parse_archive(render_archive(files)) == files


@pytest.mark.parametrize("text", ["-- b --\n", "no end of line"])
def test_a_text_that_would_end_its_file_is_refused(text):
    with pytest.raises(ValueError, match="cannot be kept"):
        render_archive({"a": text})


def test_a_name_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="two files of the name a"):
        parse_archive("-- a --\n-- a --\n")
