"""Texts of others as a terminal or a page may show them."""

from __future__ import annotations

import re
from typing import Final

# Control characters of ASCII and Latin-1, the marks that reverse the direction of text, and lone surrogates.
CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str, keep: str = "") -> str:
    r"""The text with control characters as escapes, such as `\x1b`, except those in `keep`.

    Keys, values and reasons come from others: a terminal would execute what they contain.
    """
    return CONTROLS.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
