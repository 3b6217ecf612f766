"""Errors that a user can fix. The command line shows these in one sentence; any other error is a bug of Shoal's.

Each is a ValueError. Where callers may expect another type of Python's, a subclass is that type as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class UserError(ValueError):
    """A value, file or option that the user can change; the message names the rule, what was found and the remedy."""


class WrongType(TypeError, UserError):
    """A value of a type that is not accepted."""


class MissingFile(FileNotFoundError, UserError):
    """A file or folder that should be there."""


class NotAFile(IsADirectoryError, UserError):
    """A folder where a file is needed."""


class MissingPackage(ModuleNotFoundError, UserError):
    """A library that has to be installed first."""


class CannotWrite(OSError, UserError):
    """A file or folder that cannot be written: a sentence, beside the system's number and words where it has them."""

    @classmethod
    def of(cls, sentence: str, error: OSError) -> Self:
        made = cls(sentence)
        made.errno, made.strerror = error.errno, error.strerror
        return made

    def __str__(self) -> str:  # OSError would show the number in the place of the sentence
        return str(self.args[0]) if self.args else ""


class NothingTrained(UserError):
    """A search was ended before it had trained anything that could be kept."""


class CompleteError(UserError):
    """An error in reading a model that names its own cause: another file, or a network that was given."""
