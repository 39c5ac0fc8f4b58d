"""The ways to a coordinator: TLS, sockets, etcd, and a network that is cut."""

import contextlib
import subprocess
import time

import members
import packages
import pytest
from authority import Authority

from graphmill.rendezvous import Rendezvous, own_address

ALONE = {"min_nodes": 1, "max_nodes": 1}


def test_members_and_people_come_in_by_tls(binary, tmp_path):
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = ours.issue()
    flags = ["--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(ours.ca)]
    own, foreign = (dict(zip(("cert", "key"), authority.issue("member"), strict=True)) for authority in (ours, theirs))
    with members.coordinator(binary, *flags) as address:
        with Rendezvous(address, "tls", tls={"ca": ours.ca, **own}, **ALONE) as rendezvous:
            here = rendezvous.next_rendezvous()
            here.store.set("k", "v")
            assert (here.rank, here.store.get("k")) == (0, b"v")
            status = [str(binary), "rendezvous", "status", f"{address}/tls", "--tls-ca", str(ours.ca)]
            shown = subprocess.run([*status, "--tls-cert", own["cert"], "--tls-key", own["key"]], capture_output=True, text=True)
            assert shown.returncode == 0 and "1 take part" in shown.stdout, shown.stderr
            refused = subprocess.run(status, capture_output=True, text=True)
            assert refused.returncode == 1 and "certificate" in refused.stderr
        began = time.monotonic()
        for tls in ({"ca": theirs.ca, **own}, ours.ca, {"ca": ours.ca, **foreign}, None):
            with Rendezvous(address, "tls", tls=tls, **ALONE) as rendezvous:
                with pytest.raises(PermissionError, match="certificate|TLS"):
                    rendezvous.next_rendezvous()
        assert time.monotonic() - began < 30, "nobody waits for what cannot become better"


def test_a_socket_is_an_address_too(binary, tmp_path):
    url = f"unix:{tmp_path}/socket"
    with packages.Server([binary, "rendezvous", "serve", "--listen", url]) as server:
        assert server.wait().address == url
        with Rendezvous(f"{url}//train", **ALONE) as rendezvous:
            here = rendezvous.next_rendezvous()
            assert (rendezvous.run, here.rank, here.master_addr) == ("train", 0, "127.0.0.1")
            shown = subprocess.run([binary, "rendezvous", "status", f"{url}//train"], capture_output=True, text=True)
            assert "1 take part" in shown.stdout, shown.stderr
    assert own_address(f"{url}//train") == "127.0.0.1"


def test_members_find_the_coordinator_that_leads_through_etcd(binary, tmp_path):
    with members.etcd(tmp_path) as nodes, contextlib.ExitStack() as stack:

        def coordinator():
            listen = f"127.0.0.1:{members.free_port()}"
            command = [binary, "rendezvous", "serve", "--listen", listen, "--state", f"etcd://{nodes}/runs"]
            return stack.enter_context(packages.Server(command)).wait()

        first, url = coordinator(), f"etcd://{nodes}/train?prefix=runs"
        with Rendezvous(url, **ALONE) as rendezvous:
            here = rendezvous.next_rendezvous()
            here.store.set("k", "v")
            assert (rendezvous.run, rendezvous.local_addr, here.round) == ("train", "127.0.0.1", 0)
            coordinator()
            first.process.kill()
            # Its lease ends after 5 s; nobody has told the member where the other is.
            until = time.monotonic() + 30
            while True:
                with contextlib.suppress(ConnectionError):
                    assert here.store.get("k", timeout=1) == b"v"
                    break
                assert time.monotonic() < until
            assert rendezvous.next_rendezvous().round == 1
            shown = subprocess.run([binary, "rendezvous", "status", url], capture_output=True, text=True)
            assert "1, complete" in shown.stdout, shown.stderr
    with pytest.raises(ValueError, match="password_file"):
        Rendezvous("etcd://me:secret@127.0.0.1/train", **ALONE)


class Network:
    """A bad network in front of a server (``faulty-proxy``)."""

    def __init__(self, binary, server):
        program = binary.parent / "faulty-proxy"
        if not program.exists():
            pytest.skip(f"there is no {program}: `make develop` builds it")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([program, server], text=True, **pipes)
        self.address = self.process.stdout.readline().removeprefix("listening on ").strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def has(self, fault):
        self.process.stdin.write(fault + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


def test_members_that_are_cut_off_learn_it_and_come_back(binary):
    times = {"keep_alive_interval": 0.2, "keep_alive_max_attempt": 8, "heartbeat_timeout": 2, "last_call_timeout": 1}
    settings = {"run": "cut", "min_nodes": 1, "max_nodes": 2, "join_timeout": 3, **times}
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(members.coordinator(binary))
        network = stack.enter_context(Network(binary, address))
        (here,) = stack.enter_context(members.members(address, 1, **settings))
        (there,) = stack.enter_context(members.members(network.address, 1, **settings))
        here.ask("join()"), there.ask("join()")
        first = here.value(), there.value()
        assert {(number, size) for number, _, size, _, _ in first} == {(0, 2)}

        network.has("partition")
        until = time.monotonic() + 20
        while not there.ask("rendezvous.is_lost()").value():
            assert time.monotonic() < until
            time.sleep(0.1)
        assert here.ask("rendezvous.is_lost()").value() is False
        assert there.ask("rendezvous.num_nodes_waiting()").hear()[0] == "ConnectionError"
        began = time.monotonic()
        assert there.ask("join()").hear(30)[0] == "ConnectionError"
        assert time.monotonic() - began < 20
        alone = here.ask("join()").value()
        assert alone[0] == 1 and alone[2] == 1, "the other goes on without it"

        network.has("heal")
        there.ask("join()")
        until = time.monotonic() + 20
        while here.ask("rendezvous.num_nodes_waiting()").value() == 0:
            assert time.monotonic() < until
            time.sleep(0.05)
        here.ask("join()")
        last = here.value(), there.value()
        assert {(number, size) for number, _, size, _, _ in last} == {(2, 2)}
        assert sorted(rank for _, rank, *_ in last) == [0, 1]
