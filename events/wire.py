"""What msgspec raises for bytes that are not the JSON that was expected.

`msgspec.DecodeError` is not all of it: a string that is not UTF-8 raises UnicodeDecodeError, and brackets within brackets
to no end RecursionError. Whoever decodes what somebody else wrote catches them together, or one odd message
would end the process.
"""

from __future__ import annotations

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
