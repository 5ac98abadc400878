"""How much memory there is."""

from __future__ import annotations

import contextlib
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that can still be taken: what the system has available, or what its control groups leave, if less."""
    import psutil

    return min(int(psutil.virtual_memory().available), *_left_by_groups(_GROUPS, _MOUNT), 1 << 62)


def _left_by_groups(groups: Path, mount: Path) -> list[int]:
    """Limit less usage for every control group (version 1 or 2) that this process is in and that has a limit."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, controllers, name = line.split(":", 2)
        if number == "0":
            root, limit, usage, cache = mount, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, limit, usage = mount / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        inner = root / name.lstrip("/")
        for folder in (inner, *inner.parents):
            with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
                most = int((folder / limit).read_text())
                found.append(max(0, most - int((folder / usage).read_text()) + _given_back(folder, cache)))
            if folder == root:
                break
    return found


def _given_back(folder: Path, name: str) -> int:
    """Bytes of cached files in a control group, which the system gives up when memory is asked for."""
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            if line.split()[0] == name:
                return int(line.split()[1])
    return 0
