from __future__ import annotations

import unicodedata

import pytest

from ranking_evaluate.core.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\u202eabc", "⟨202E⟩abc"),
        ("a\nb\x00", "a⟨000A⟩b⟨0000⟩"),
        ("\x1b]52;c;ZXZpbA==\x07", "⟨001B⟩]52;c;ZXZpbA==⟨0007⟩"),
        ("\x9b31m\x7f", "⟨009B⟩31m⟨007F⟩"),
        ("a\u2028b\ud800", "a⟨2028⟩b⟨D800⟩"),
        ("👩‍👧", "👩‍👧"),
        ("\u200fשלום", "\u200fשלום"),
        ("a\u00a0b", "a\u00a0b"),
    ],
)
def test_only_marks_that_deceive_are_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_control_character_of_unicode_is_left() -> None:
    shown = visible("".join(map(chr, range(0x10000))))
    assert not {unicodedata.category(one) for one in set(shown)} & {"Cc", "Cs", "Zl", "Zp"}
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
