"""What msgspec raises for bytes that are not the JSON that was expected.

Not only `msgspec.DecodeError`: a string that is not UTF-8 raises UnicodeDecodeError, and endlessly nested brackets
RecursionError. Whoever decodes what somebody else wrote catches them together, or one odd message would end the
process.
"""

from __future__ import annotations

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
