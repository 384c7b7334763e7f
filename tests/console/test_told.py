"""What a command's user reads of an error."""

from __future__ import annotations

import errno

import pytest

from services.console.errors import Unusable, told


def not_utf_8() -> UnicodeEncodeError:
    with pytest.raises(UnicodeEncodeError) as raised:
        "a\udcff.db".encode()
    return raised.value


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (not_utf_8(), r"'a\udcff.db': expected text in UTF-8"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.db"), "a.db: No such file or directory"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("MUSTER_HEALTH_PORT: taken"), "MUSTER_HEALTH_PORT: taken"),
        (Unusable("expected a place of the log"), "expected a place of the log"),
    ],
)
def test_of_an_error_no_number_is_told(error: Exception, said: str) -> None:
    assert told(error) == said
