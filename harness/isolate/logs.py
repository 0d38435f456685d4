"""What untrusted programs print, kept within bounds."""

from __future__ import annotations

from pathlib import Path

LOG_LIMIT_BYTES = 8 << 20  # of what one process prints: half of it from the start, half from the end


class CappedLog:
    """A log file whose head is written at once; of the rest the tail is kept, and written at the end."""

    def __init__(self, path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")  # what an interrupted attempt printed is not this one's
        self._half = limit_bytes // 2
        self._head_bytes = 0
        self._tail = bytearray()
        self._dropped_bytes = 0

    def write(self, data: bytes) -> None:
        head = data[: self._half - self._head_bytes]
        self._file.write(head)
        self._file.flush()
        self._head_bytes += len(head)
        self._tail += data[len(head) :]
        if len(self._tail) > 2 * self._half:  # twice, for each cut moves what is kept
            self._cut()

    def _cut(self) -> None:
        extra = max(0, len(self._tail) - self._half)
        self._dropped_bytes += extra
        del self._tail[:extra]

    def close(self) -> None:
        self._cut()
        if self._dropped_bytes:
            self._file.write(f"\n[... {self._dropped_bytes} bytes dropped here ...]\n".encode())
        self._file.write(self._tail)
        self._file.close()

    def __enter__(self) -> CappedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
