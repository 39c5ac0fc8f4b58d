"""`graphmill objects` from outside: a server, files in and out, what it holds, and how it says no."""

import json
import os
import signal
import subprocess

import pytest


class Running:
    """An object server of one test."""

    def __init__(self, workshop, *flags, before=()):
        self.workshop = workshop
        command = [*before, str(workshop.binary), "objects", "serve", "--listen", "127.0.0.1:0", *flags]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.address = self.process.stdout.readline().removeprefix("listening on ").strip()

    def run(self, *arguments, **keywords):
        return self.workshop.run("objects", *arguments, "--address", self.address, **keywords)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(timeout=30)


@pytest.fixture
def server(workshop):
    running = Running(workshop, "--budget", "256MiB", "--object-limit", "100MiB")
    yield running
    running.stop()


def test_files_go_in_and_come_out(server, workshop):
    small, large = os.urandom(1000), os.urandom(40_000_000)
    (workshop.path / "small").write_bytes(small)
    (workshop.path / "large").write_bytes(large)
    done = server.run("put", "small", "large")
    keys = done.stdout.split()
    assert len(keys) == 2 and all(key.startswith("graphmill+tcp://") for key in keys)
    assert "storing" in done.stderr, "a large transfer tells how far it is"
    for key, content in zip(keys, (small, large)):
        server.run("get", key, "--out", "copy")
        assert (workshop.path / "copy").read_bytes() == content
    listed = json.loads(server.run("ls", "--json").stdout)
    assert sorted((one["key"], one["bytes"]) for one in listed) == sorted(zip(keys, (1000, 40_000_000)))
    assert set(server.run("ls", "--keys").stdout.split()) == set(keys)
    assert keys[0].rsplit("/", 1)[1].split("?")[0] in server.run("ls").stdout
    stat = json.loads(server.run("stat", "--json").stdout)
    assert (stat["objects"], stat["puts"], stat["spawned"]) == (2, 2, False) and 40_001_000 <= stat["used"] < 41_000_000
    assert "2 puts" in server.run("stat").stdout
    server.run("rm", *keys)
    server.run("rm", *keys)
    assert server.run("ls").stdout == ""
    assert "there is no object" in server.run("get", keys[0], expect=1).stderr


def test_an_object_may_come_from_and_go_to_a_pipe(server, workshop):
    command = [str(workshop.binary), "objects", "put", "-", "--address", server.address]
    key = subprocess.run(command, input=b"piped", capture_output=True, check=True, timeout=60).stdout.decode().strip()
    command = [str(workshop.binary), "objects", "get", key, "--address", server.address]
    assert subprocess.run(command, capture_output=True, check=True, timeout=60).stdout == b"piped"


def test_errors_say_what_is_wrong(server, workshop):
    (workshop.path / "over").write_bytes(bytes(101 * 2**20))
    refused = server.run("put", "over", expect=1).stderr
    assert "takes at most 104857600 bytes" in refused and "storing" not in refused
    # No more of a pipe is read than shows that it is too much.
    endless = f"cat /dev/zero | {workshop.binary} objects put - --address {server.address}"
    refused = subprocess.run(endless, shell=True, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "takes at most 104857600 bytes" in refused.stderr
    assert "cannot read missing" in server.run("put", "missing", expect=1).stderr
    assert "is not a key" in server.run("get", "http://localhost/", expect=2).stderr
    address = f"unix:{workshop.path}/nobody"
    assert "no object server" in workshop.run("objects", "stat", "--address", address, expect=1).stderr
    done = workshop.run("objects", "serve", "--listen", "0.0.0.0:0", expect=1)
    assert "can be reached from other hosts" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_server_stops_in_good_order_and_without_its_clients(workshop, how):
    running = Running(workshop)
    (workshop.path / "token").write_text("open-sesame")
    key = running.run("put", "token").stdout.strip()
    assert running.stop(how) == 0
    assert "no object server" in running.run("get", key, expect=1).stderr


def test_a_terminal_that_closes_stops_no_server_that_was_told_to_ignore_it(workshop):
    running = Running(workshop, before=["nohup"])
    running.process.send_signal(signal.SIGHUP)
    running.run("stat")
    assert running.stop() == 0


def test_a_token_is_wanted_where_there_is_one(workshop):
    (workshop.path / "token").write_text("open-sesame")
    (workshop.path / "token").chmod(0o600)
    running = Running(workshop, "--token-file", str(workshop.path / "token"))
    assert "token is missing or wrong" in running.run("stat", expect=1).stderr
    running.run("stat", "--token-file", "token")
    assert running.stop() == 0
