"""Runs other programs, and says in one line why one failed."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

POLL_SECONDS = 0.1
IPC_RMID = 0


class Failed(Exception):
    """Why something could not be done, in one line."""


def run(command, variables: dict[str, str] | None = None) -> str:
    """What the command printed; what it said when it failed goes to our own stderr, whole."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env={**os.environ, **(variables or {})}, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr, flush=True)
        raise Failed(telling_line(done.stderr) or f"{words[0]} ended with {done.returncode}")
    return done.stdout


def run_together(commands, seconds: float, variables: dict[str, str] | None = None) -> list[str]:
    """Runs programs side by side until all have ended; what each printed.

    When one fails, or all together take longer than `seconds`, all are ended. Nothing that they started outlives this
    call, nor do their temporary files and shared memory.
    """
    deadline = time.monotonic() + seconds
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="graphmill-peers-"))
        environment = {**os.environ, **(variables or {}), "TMPDIR": folder}
        started = []
        for number, command in enumerate(commands):
            out, err = (Path(folder, f"{number}.{name}") for name in ("out", "err"))
            with out.open("wb") as stdout, err.open("wb") as stderr:
                words = [str(word) for word in command]
                files = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr}
                process = subprocess.Popen(words, env=environment, start_new_session=True, **files)
            stack.callback(end_session, process)
            started.append((process, out, err))
        while None in (codes := [process.poll() for process, _, _ in started]):
            if any(codes) or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        if any(code != 0 for code in codes):
            for _, out, err in started:
                print(out.read_text() + err.read_text(), file=sys.stderr, flush=True)
        for (_, _, err), command, code in zip(started, commands, codes):
            if code:
                raise Failed(telling_line(err.read_text()) or f"{command[0]} ended with {code}")
        if None in codes:
            raise Failed(f"not done within {seconds:.0f} s")
        return [out.read_text() for _, out, _ in started]


def end_session(leader: subprocess.Popen):
    """Kills what is left of the session that this process leads, and removes the shared memory that they made."""
    members = {leader.pid}
    while there := session(leader.pid):
        members |= there
        for member in there:
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(POLL_SECONDS)
    leader.wait()
    remove_segments(members)


def session(leader: int) -> set[int]:
    """The processes of a session, but for those that are dead and only not yet waited for."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything.
            state, _, _, number = stat.read_text().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue
        if int(number) == leader and state != "Z":
            found.add(int(stat.parent.name))
    return found


def remove_segments(makers: set[int]):
    """Removes the System V shared memory that these processes made: unlike all else it outlives them."""
    libc = ctypes.CDLL(None)
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        _, segment, _, _, maker, *_ = line.split()
        if int(maker) in makers:
            libc.shmctl(int(segment), IPC_RMID, None)


def telling_line(text: str) -> str:
    """The line of an error message that names the error: the last that begins like one, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    naming = [line for line in lines if re.match(r"[\w.]*(error|exception)\b\s*:", line, re.IGNORECASE)]
    return (naming or lines or [""])[-1]


def say(text: str):
    """Progress, apart from the results on stdout."""
    print(text, file=sys.stderr, flush=True)
