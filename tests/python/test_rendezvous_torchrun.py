"""torchrun with its agents as members of a run: scripts that know nothing of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import members
import pytest

torch = pytest.importorskip("torch")

from torch.distributed.elastic.rendezvous import (  # noqa: E402
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousParameters,
    RendezvousTimeoutError,
)

from graphmill.rendezvous import Rendezvous  # noqa: E402
from graphmill.torchrun import create_handler  # noqa: E402

# Sums up until a file is there; says so whenever it begins, and at the end.
SCRIPT = """
import datetime, json, os, sys, time
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
rank, size, attempt = dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
def say(what):
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps([what, rank, size, attempt, os.getpid(), os.environ["MASTER_PORT"]]) + "\\n")
total = torch.tensor([rank + 1])
dist.all_reduce(total)
assert int(total) == size * (size + 1) // 2
say("began")
while True:
    if sys.argv[2] == "dies" and attempt == 0 and rank == 1:
        os._exit(3)
    done = torch.tensor([int(os.path.exists(sys.argv[1] + ".done"))])
    dist.all_reduce(done)
    if int(done):
        break
    time.sleep(0.05)
say("ended")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def address(binary):
    with members.coordinator(binary) as address:
        yield address


class Job:
    """Agents of a run, and what their workers say."""

    def __init__(self, folder, address, nodes, *, dies=False, **environment):
        (folder / "script.py").write_text(SCRIPT)
        self.said = folder / "said"
        conf = "last_call_timeout=0.5,keep_alive_interval=0.3,keep_alive_max_attempt=3,join_timeout=60"
        self.command = [
            sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=graphmill", f"--rdzv-endpoint={address}",
            f"--rdzv-id={folder.name}", f"--rdzv-conf={conf}", f"--nnodes={nodes}", "--nproc-per-node=1", "--max-restarts=3",
            "--monitor-interval=0.1", str(folder / "script.py"), str(self.said), "dies" if dies else "lives",
        ]  # fmt: skip
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        self.agents = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for agent in self.agents:
            agent.kill()
            agent.communicate()
        for *_, process, _ in self.heard():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def start(self):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.agents.append(subprocess.Popen(self.command, env=self.environment, text=True, **pipes))
        return self.agents[-1]

    def heard(self):
        return [json.loads(line) for line in self.said.read_text().splitlines()] if self.said.exists() else []

    def wait(self, what, size, attempt=None, count=None):
        """Waits until all ranks of a world have said something; what they said."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            fitting = [
                line for line in self.heard() if line[0] == what and line[2] == size and attempt in (None, line[3])
            ]
            if len(fitting) == (count or size):
                assert {line[1] for line in fitting} == set(range(size))
                return fitting
            time.sleep(0.05)
        for agent in self.agents:
            agent.kill()
        raise AssertionError([self.heard(), *(agent.communicate()[0] for agent in self.agents)])

    def finish(self, *agents):
        self.said.with_suffix(".done").touch()
        for agent in agents:
            text = agent.communicate(timeout=60)[0]
            assert agent.returncode == 0, text
            assert "Error waiting on exit barrier" not in text, text


def test_two_agents_run_a_script_and_restart_it_when_a_worker_dies(tmp_path, address):
    """Here the workers make a store of their own."""
    with Job(tmp_path, address, 2, dies=True, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") as job:
        agents = job.start(), job.start()
        job.wait("began", 2, count=4)
        job.finish(*agents)
        assert [line[0] for line in job.heard()].count("ended") == 2


@pytest.mark.parametrize("gone", [1, 0])
def test_a_node_joins_one_dies_and_the_other_forms_anew(tmp_path, address, gone):
    """Here the workers share the store of the agents, which the agent of rank 0 hosts."""
    with Job(tmp_path, address, "1:4") as job:
        first = job.start()
        job.wait("began", 1)
        second = job.start()
        workers = {line[1]: line[4] for line in job.wait("began", 2)}
        # The first agent has kept its rank, so its worker is that of rank 0.
        agents = [first, second]
        agents.pop(gone).kill()
        os.kill(workers[gone], signal.SIGKILL)
        job.wait("began", 1, count=2)
        job.finish(*agents)
        assert len({line[5] for line in job.heard()}) == 3, "each round has a store of its own"


def parameters(address, run, least=1, most=1, **conf):
    return RendezvousParameters("graphmill", address, run, least, most, **conf)


def test_handlers_keep_torchs_contract(address, tmp_path):
    conf = {"last_call_timeout": "0.2", "keep_alive_interval": "1", "timeout": 900, "use_libuv": "1", "stable_ranks": "no"}
    first = create_handler(parameters(address, "contract", 1, 2, **conf))
    assert (first.get_backend(), first.get_run_id(), first.use_agent_store) == ("graphmill", "contract", True)
    assert first.num_nodes_waiting() == 0 and not first.is_closed()
    alone = first.next_rendezvous()
    assert (alone.rank, alone.world_size) == (0, 1)
    second = create_handler(parameters(address, "contract", 1, 2, **conf))
    found = []
    thread = threading.Thread(target=lambda: found.append(second.next_rendezvous()))
    thread.start()
    until = time.monotonic() + 10
    while first.num_nodes_waiting() != 1:
        assert time.monotonic() < until
    infos = [first.next_rendezvous(), *(thread.join(10) or found)]
    assert sorted(info.rank for info in infos) == [0, 1] and {info.world_size for info in infos} == {2}
    assert len({(info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port) for info in infos}) == 1
    assert infos[0].bootstrap_store_info.master_port != alone.bootstrap_store_info.master_port
    infos[0].store.set("key", "value")
    assert infos[1].store.get("key") == b"value" and isinstance(infos[1].store, torch.distributed.Store)
    # Workers find the same store at the address that they are told.
    told = infos[1].bootstrap_store_info
    worker = torch.distributed.TCPStore(told.master_addr, told.master_port, is_master=False, timeout=timedelta(seconds=10))
    assert worker.get("graphmill/contract/1/key") == b"value"
    first.set_closed()
    assert second.is_closed()
    with pytest.raises(RendezvousClosedError):
        second.next_rendezvous()
    closing = threading.Thread(target=second.shutdown)
    closing.start()
    assert first.shutdown() and first.shutdown()
    closing.join(10)


def test_whoever_moves_to_rank_0_hosts_the_store(address):
    first, second = (create_handler(parameters(address, "moves", 1, 2, last_call_timeout="0.5")) for _ in range(2))
    found = []
    thread = threading.Thread(target=lambda: found.append(second.next_rendezvous()))
    thread.start()
    before = first.next_rendezvous()
    thread.join(10)
    assert (before.rank, found[0].rank) == (0, 1)
    first._rendezvous.leave()
    after = second.next_rendezvous()
    assert (after.rank, after.world_size) == (0, 1)
    assert after.bootstrap_store_info.master_port != before.bootstrap_store_info.master_port
    after.store.set("key", "value")
    assert after.store.get("key") == b"value"
    assert second.shutdown()


def test_an_agent_that_ends_without_shutting_down_leaves(address):
    script = """
import sys
from torch.distributed.elastic.rendezvous import RendezvousParameters
from graphmill.torchrun import create_handler
handler = create_handler(RendezvousParameters("graphmill", sys.argv[1], "leaves", 1, 1))
assert handler.next_rendezvous().rank == 0
"""
    subprocess.run([sys.executable, "-c", script, address], check=True, timeout=60)
    with Rendezvous(address, "leaves", min_nodes=1, max_nodes=1) as next_one:
        began = time.monotonic()
        assert next_one.next_rendezvous().round == 1
        assert time.monotonic() - began < 5, "there is no lease to wait for"


def test_a_store_that_is_not_shared_is_at_another_port(address, monkeypatch):
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    handler = create_handler(parameters(address, "not shared"))
    assert not handler.use_agent_store
    info = handler.next_rendezvous()
    assert info.bootstrap_store_info.master_port != handler._round.master_port
    assert handler.shutdown()


def test_handlers_raise_torchs_errors(address, tmp_path):
    lonely = create_handler(parameters(address, "lonely", 2, 2, join_timeout="0.3"))
    with pytest.raises(RendezvousTimeoutError):
        lonely.next_rendezvous()
    other = create_handler(parameters(address, "lonely", 2, 3, join_timeout="0.3"))
    with pytest.raises(RendezvousError, match="2 to 3|settings"):
        other.next_rendezvous()
    nobody = create_handler(parameters("127.0.0.1:1", "r", join_timeout="0.3", heartbeat_timeout="0.3", close_timeout="0.3"))
    with pytest.raises(RendezvousConnectionError):
        nobody.next_rendezvous()
    with pytest.raises(RendezvousConnectionError):
        nobody.is_closed()
    assert nobody.shutdown() is False
    token = tmp_path / "token"
    token.write_text("sesame-sesame-sesame")
    token.chmod(0o600)
    create_handler(parameters(address, "r", token_file=str(token)))
    for wrong, message in [
        ({"join_timeout": "soon"}, "join_timeout is 'soon'"),
        ({"expected": "1.5"}, "expected is '1.5'"),
        ({"last_call_timeout": "0"}, "last_call_timeout is 0"),
        ({"stable_ranks": "perhaps"}, "stable_ranks"),
        ({"jion_timeout": "1"}, "'jion_timeout', which is not known"),
        ({"tls_cert": "c"}, "tls needs ca"),
    ]:
        with pytest.raises(ValueError, match=message):
            create_handler(parameters(address, "r", **wrong))
    with pytest.raises(OSError, match="no-such-file"):
        create_handler(parameters(address, "r", token_file="no-such-file"))
