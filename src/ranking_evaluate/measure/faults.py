"""What is wrong with a file: where and why, up to ten of its faults and how many there are."""

from __future__ import annotations

from typing import Final

from ranking_evaluate.core.visible import visible

TOLD: Final = 10
# Faults do not come in the order of the lines, so more are kept than told; of a file of nothing but faults not all.
_KEPT: Final = 1000
_SHOWN: Final = 80


class FileError(ValueError):
    """A file of judgments or a run cannot be used; the text says which, where and why, a line for each fault."""


class Faults:
    """The faults found in one file so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        # In the order in which they were found; one that is found a second time is the same.
        self._found: dict[tuple[int, str, str], None] = {}

    def add(self, place: int | str, reason: str) -> None:
        """Remember a fault in a line, by its number, or at another place, in words."""
        line, words = (place, f"line {place}") if isinstance(place, int) else (0, place)
        if (line, words, reason) not in self._found:
            self.count += 1
            if len(self._found) < _KEPT:
                self._found[line, words, reason] = None

    def extend(self, other: Faults, lines_before: int) -> None:
        """Remember the faults of a part of the file that has so many lines before it."""
        self.count += other.count - len(other._found)
        for line, words, reason in other._found:
            self.add(line + lines_before if line else words, reason)

    def refuse(self) -> None:
        """Raise FileError when there is any fault."""
        if not self.count:
            return
        told = [f"{self.name}, {words}: {reason}" for _, words, reason in sorted(self._found)[:TOLD]]
        if self.count > len(told):
            told.append(f"{self.name}: {self.count - len(told):,} further faults.")
        raise FileError("\n".join(told))


def shown(field: bytes) -> str:
    """Return a field of a file as people see it in an error, cut short when it is very long."""
    return told(field.decode(errors="replace"))


def told(text: str) -> str:
    """Return an id as people see it in an error, cut short when it is very long."""
    return visible(text) if len(text) <= _SHOWN else f"{visible(text[:_SHOWN])}..."
