"""Runs other programs, and says in one line why one failed."""

import os
import re
import subprocess
import sys


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


def telling_line(text: str) -> str:
    """The line of an error message that names the error: the last that begins like one, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    naming = [line for line in lines if re.match(r"[\w.]*(error|exception)\b\s*:", line, re.IGNORECASE)]
    return (naming or lines or [""])[-1]


def say(text: str):
    """Progress, apart from the results on stdout."""
    print(text, file=sys.stderr, flush=True)
