from __future__ import annotations

import fcntl
import mmap
import os
import threading
from pathlib import Path

import pytest

from harness.worker import channel


def answering(theirs: channel.Channel, *, token: bytes | None = None, early: bool = False) -> threading.Thread:
    """Answer one order, with another token than its own, or before it came."""

    def run() -> None:
        if early:
            theirs.send(channel.DONE, bytes(channel.TOKEN_BYTES), b"early")
        _, own, payload, file = theirs.receive()
        if file is not None:
            os.close(file)
        theirs.send(channel.DONE, own if token is None else token, payload + b"!")

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_an_answer_repeats_the_token_of_its_order() -> None:
    ours, theirs = channel.pair()
    thread = answering(theirs)
    assert ours.ask(channel.CALL, b"x") == (channel.DONE, b"x!")
    thread.join()


@pytest.mark.parametrize("how", [{"token": bytes(channel.TOKEN_BYTES)}, {"early": True}])
def test_an_answer_that_was_sent_before_its_order_is_none(how: dict[str, object]) -> None:
    ours, theirs = channel.pair()
    thread = answering(theirs, **how)  # type: ignore[arg-type]
    with pytest.raises(channel.Unasked):
        ours.ask(channel.CALL)
    thread.join()


def test_the_other_end_is_gone() -> None:
    ours, theirs = channel.pair()
    theirs.close()
    with pytest.raises(channel.Closed):
        ours.ask(channel.CALL)
    with pytest.raises(channel.Closed):
        ours.receive()


@pytest.mark.process  # it connects
def test_one_process_connects_and_nobody_after_it(tmp_path: Path) -> None:
    listening = channel.listen(str(tmp_path))
    theirs = channel.connect(str(tmp_path))
    ours = channel.accept(listening)
    thread = answering(theirs)
    assert ours.ask(channel.TELL) == (channel.DONE, b"!")
    thread.join()
    assert not list(tmp_path.iterdir())


@pytest.mark.process  # it connects
def test_who_does_not_come_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CONNECT_S", 0.05)
    with pytest.raises(channel.Closed):
        channel.accept(channel.listen(str(tmp_path)))
    with pytest.raises(channel.Closed):
        channel.connect(str(tmp_path / "nowhere"))


@pytest.mark.process  # it listens
def test_who_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / channel.ENDED).touch()
    with pytest.raises(channel.Closed):
        channel.accept(channel.listen(str(tmp_path)))


def test_neither_side_can_cut_the_memory_under_the_other() -> None:
    memory = channel.SharedMemory(10)
    with pytest.raises(PermissionError):
        os.ftruncate(memory.file, 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(memory.file, fcntl.F_ADD_SEALS, 0)
    ours, theirs = channel.pair()
    ours.send(channel.MAP, bytes(channel.TOKEN_BYTES), b"", memory.file)
    *_, file = theirs.receive()
    assert file is not None
    with mmap.mmap(file, memory.size_bytes) as seen:
        seen[:3] = b"abc"
        assert memory.map[:3] == b"abc"
    os.close(file)
    memory.close()
