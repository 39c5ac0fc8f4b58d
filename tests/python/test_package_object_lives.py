"""Object servers that Python processes start, share and lose; signals, forks and threads meanwhile."""

import contextlib
import json
import os
import signal
import threading
import time

import pytest
import stores

from graphmill.objects import Connector, Key


def at(folder, **server) -> dict:
    """What connectors to this test's own server are made with."""
    return {"address": f"unix:{folder}/objects.sock", "spawn": {"server": {"linger": 5, **server}}}


def test_processes_share_a_server_and_the_second_leaves_it_alone(runtime_folder):
    config = at(runtime_folder)
    with stores.connected(config) as connector:
        key = connector.put(b"from the first")
        with stores.worker(json.dumps(config)) as second:
            assert second.ask(f"bytes(connector.get(Key({key.url!r}))).decode()").value() == "from the first"
            back = Key(second.ask("connector.put(b'from the second').url").value())
            assert second.ask("connector.close()").value() is None
        (server,) = stores.servers(runtime_folder)
        assert os.getpgid(server) == server, "what interrupts its starter does not concern it"
        assert connector.get(back) == b"from the second" and connector.get(key) == b"from the first"
        connector.close(kill_server=True)
        stores.until(lambda: not stores.servers(runtime_folder), "the server ends")


def test_ten_processes_that_begin_together_start_one_server(runtime_folder):
    config = at(runtime_folder)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(stores.worker()) for _ in range(10)]
        begin = time.time() + 0.5
        pause = f"time.sleep(max(0, {begin} - time.time()))"
        make = f"{pause} or globals().update(connector=Connector(**{config!r}))"
        for worker in workers:
            worker.ask(make)
        for worker in workers:
            worker.value(60)
        keys = [worker.ask("connector.put(str(os.getpid()).encode()).url").value() for worker in workers]
        assert len({Key(key).generation for key in keys}) == 1
        assert len(stores.servers(runtime_folder)) == 1
        for worker in workers:
            found = worker.ask(f"[bytes(one).decode() for one in connector.get_batch([Key(key) for key in {keys!r}])]").value()
            assert found == [str(one.process.pid) for one in workers]
        workers[0].ask("connector.close(kill_server=True)").value()


def test_the_death_of_the_starter_loses_nothing(runtime_folder):
    config = at(runtime_folder)
    with stores.worker(json.dumps(config)) as starter:
        small = Key(starter.ask("connector.put(b'small').url").value())
        large = Key(starter.ask("connector.put(b'l' * 3_000_000).url").value())
        with stores.worker(json.dumps(config)) as other:
            assert other.ask(f"connector.exists(Key({small.url!r}))").value()
            starter.kill()
            with stores.connected(config) as connector:
                assert connector.get(small) == b"small" and connector.get(large) == b"l" * 3_000_000


def test_the_death_of_the_server_is_an_error_within_the_deadline(runtime_folder):
    config = {**at(runtime_folder), "deadline": 5}
    with stores.connected(config) as connector:
        small, large = connector.put(b"small"), connector.put(b"l" * 3_000_000)
        mapped, later, outcomes = connector.get(large), connector.new_key(), []

        def wait() -> None:
            try:
                outcomes.append(connector.get(later, wait=60))
            except Exception as error:
                outcomes.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        stores.until(lambda: connector.stat()["waiting_gets"] == 1, "the get waits")
        (server,) = stores.servers(runtime_folder)
        began = time.monotonic()
        os.kill(server, signal.SIGKILL)
        thread.join(20)
        assert isinstance(outcomes[0], ConnectionError) and outcomes[0].kind == "unreachable"
        for call in (
            lambda: connector.get(small),
            lambda: connector.put(b"x"),
            lambda: connector.put(b"x" * 3_000_000),
            lambda: connector.exists(small),
            lambda: connector.evict(small),
            lambda: connector.put_batch([b"a", b"b"]),
            connector.stat,
        ):
            with pytest.raises(ConnectionError, match="no object server"):
                call()
        assert time.monotonic() - began < 20
        assert mapped == b"l" * 3_000_000, "what was got stays"
        # Another server has another generation, and none of the objects.
        with stores.connected(config) as other:
            assert connector.get(small) is None and not connector.exists(large)
            assert connector.get(other.put(b"new")) == b"new"


def test_a_server_that_nobody_uses_ends(runtime_folder):
    connector = Connector(**at(runtime_folder, linger=0.3))
    key = connector.put(b"lost")
    time.sleep(1)
    assert connector.get(key) == b"lost", "an open connector keeps it"
    del connector
    stores.until(lambda: not stores.servers(runtime_folder), "the server ends")
    with stores.connected(at(runtime_folder)) as connector:
        assert connector.get(key) is None


def test_the_users_own_server_needs_no_address(runtime_folder):
    with Connector() as first, Connector() as second:
        assert first.config()["address"] == f"unix:{runtime_folder}/graphmill/objects.sock"
        assert second.get(first.put(b"own")) == b"own"
        first.close(kill_server=True)


def test_a_signal_ends_a_wait(config):
    with stores.connected(config) as connector, stores.worker(json.dumps(config)) as worker:
        key = connector.new_key()
        worker.ask(f"connector.get(Key({key.url!r}), wait=100)")
        time.sleep(0.6)
        began = time.monotonic()
        worker.process.send_signal(signal.SIGINT)
        assert worker.hear(10)[0] == "KeyboardInterrupt"
        assert time.monotonic() - began < 5
        # It goes on as if nothing had happened.
        connector.set(key, b"now")
        assert worker.ask(f"bytes(connector.get(Key({key.url!r}), wait=100)).decode()").value() == "now"


def test_a_signal_ends_a_call_to_a_server_that_hangs(runtime_folder):
    config = at(runtime_folder)
    with stores.connected(config), stores.worker(json.dumps(config)) as worker:
        (server,) = stores.servers(runtime_folder)
        os.kill(server, signal.SIGSTOP)
        try:
            worker.ask("connector.put(b'x')")
            time.sleep(0.4)
            worker.process.send_signal(signal.SIGINT)
            assert worker.hear(10)[0] == "KeyboardInterrupt"
        finally:
            os.kill(server, signal.SIGCONT)
        assert worker.ask("bytes(connector.get(connector.put(b'x'))).decode()").value() == "x"


def test_a_server_that_hangs_is_waited_for_up_to_the_deadline(runtime_folder):
    config = {**at(runtime_folder), "deadline": 0.5}
    with stores.connected(config) as connector:
        (server,) = stores.servers(runtime_folder)
        os.kill(server, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(TimeoutError, match="within 500ms") as caught:
                connector.put(b"x")
            assert caught.value.kind == "timeout" and time.monotonic() - began < 10
        finally:
            os.kill(server, signal.SIGCONT)
        assert connector.get(connector.put(b"x")) == b"x"


def test_the_handler_of_a_signal_may_use_the_connector_that_is_waited_on(runtime_folder):
    with stores.connected(at(runtime_folder)) as connector:
        key = connector.new_key()
        handled = []

        def handle(*_) -> None:
            handled.append(connector.get(connector.put(b"inside")))
            connector.set(key, b"set by the handler")

        before = signal.signal(signal.SIGALRM, handle)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            assert connector.get(key, wait=30) == b"set by the handler"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert handled == [b"inside"]


def test_a_forked_child_has_connections_of_its_own(config):
    with stores.connected(config) as connector:
        key = connector.put(b"p" * 3_000_000)
        held = connector.get(key)
        children = []
        ids, tell = os.pipe()
        for number in range(3):
            if (child := os.fork()) == 0:
                code = 1
                try:
                    assert held == b"p" * 3_000_000
                    drawn = [connector.new_key().id for _ in range(2)] + [connector.put(b"").id]
                    os.write(tell, "".join(f"{id}\n" for id in drawn).encode())
                    for turn in range(20):
                        content = f"{number} {turn}".encode()
                        assert connector.get(connector.put(content)) == content
                    assert connector.get(key) == held
                    connector.close()
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        for turn in range(50):
            content = f"parent {turn}".encode()
            assert connector.get(connector.put(content)) == content
        assert [stores.wait_child(child) for child in children] == [0, 0, 0]
        assert connector.get(key) == held
        os.close(tell)
        with open(ids) as told:
            drawn = told.read().split()
        assert len(set(drawn)) == 9, "no two children draw the same"


def test_a_forked_child_keeps_the_bytes_of_what_its_parent_gave_back(config):
    with stores.connected(config) as connector:
        first = connector.put(b"1" * 1_000_000)
        held = connector.get(first)
        wait, tell = os.pipe()
        if (child := os.fork()) == 0:
            code = 1
            try:
                os.close(tell)
                os.read(wait, 1)
                code = 0 if held == b"1" * 1_000_000 else 2
            finally:
                os._exit(code)
        del held
        connector.evict(first)
        keys = [connector.put(b"2" * 1_000_000) for _ in range(20)]
        os.close(tell)
        assert stores.wait_child(child) == 0
        assert all(connector.exists(key) for key in keys)


def test_others_run_while_one_waits(config):
    with stores.connected(config) as connector:
        key = connector.new_key()
        thread = threading.Thread(target=lambda: connector.get(key, wait=2))
        thread.start()
        began, turns = time.monotonic(), 0
        while thread.is_alive() and time.monotonic() - began < 1:
            time.sleep(0.001)
            turns += 1
        assert turns > 50, "the interpreter is not held by who waits"
        connector.set(key, b"")
        thread.join(20)


def test_two_servers_live_side_by_side(runtime_folder):
    other = {**at(runtime_folder), "address": f"127.0.0.1:{stores.free_port()}"}
    with stores.connected(at(runtime_folder)) as first, stores.connected(other) as second:
        keys = [first.put(b"one"), second.put(b"two")]
        assert len(stores.servers(runtime_folder)) == 2
        assert first.stat()["objects"] == second.stat()["objects"] == 1
        # A key finds its server, whoever is asked.
        for connector in (first, second):
            assert connector.get_batch(keys) == [b"one", b"two"]
            assert connector.get_batch(keys[::-1]) == [b"two", b"one"]
