"""What long work shows on standard error: a spinner or a bar, gone when done; nothing where that is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def spinner(task: str) -> Iterator[None]:
    """A spinner."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(Text(task)):
            yield
    else:
        yield


@contextmanager
def progress_bar(task: str, *, elapsed: bool = False) -> Iterator[Callable[..., None]]:
    """A bar with the time that is left, and with the time that has passed; yields a function of (done, total)."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    passed = (TimeElapsedColumn(), TextColumn("left")) if elapsed else ()
    shown = Progress(
        *columns, *passed, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    )
    with shown as bar:
        identifier = bar.add_task(task, total=None)

        def told(done: int, total: int, _title: str = "") -> None:
            if bar.tasks[0].total is None:  # what was there before took no time
                bar.reset(identifier, completed=done, total=total)
            bar.update(identifier, completed=done, total=total)

        yield told
