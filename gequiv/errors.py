"""The errors that gequiv raises on purpose; anything else that escapes is a defect."""

from __future__ import annotations


class GequivError(Exception):
    """Base class of every error that gequiv raises on purpose."""


class ParameterError(GequivError, ValueError):
    """A parameter is outside what is allowed; the message names it, its value and the allowed range."""


class CertificationError(GequivError, ArithmeticError):
    """A number could not be certified and is therefore not returned; the message says what to try."""


class InputFileError(GequivError, OSError):
    """A file that was asked for could not be read or written."""


class StorageError(InputFileError):
    """A result could not be kept, on a full disk for example; what was kept before is unharmed."""


class ExecutionError(GequivError, RuntimeError):
    """Draws could not be carried out: worker processes died, or the scheduler of a cluster was lost."""
