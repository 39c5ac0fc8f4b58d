"""Members of runs in Python, against real coordinators."""

import contextlib
import os
import queue
import signal
import threading
import time

import members
import pytest

from graphmill.rendezvous import Rendezvous, RendezvousClosed, RendezvousGracefulExit, RendezvousTimeout, own_address

# A lease of 0.6 s.
SHORT = {"keep_alive_interval": 0.2, "keep_alive_max_attempt": 3}


@pytest.fixture(scope="module")
def address(binary):
    with members.coordinator(binary) as address:
        yield address


@pytest.fixture
def run(request):
    return request.node.name


@contextlib.contextmanager
def alone(address, run, **further):
    with Rendezvous(address, run, **{"min_nodes": 1, "max_nodes": 1, **further}) as rendezvous:
        yield rendezvous


@pytest.mark.parametrize("count", [2, 8])
def test_members_get_ranks_and_the_same_bootstrap_information(address, run, count):
    with members.members(address, count, run=run, min_nodes=count, max_nodes=count) as made:
        for expected in range(3):
            began = time.monotonic()
            joined = [member.value() for member in [member.ask("join()") for member in made]]
            assert time.monotonic() - began < 5
            assert sorted(rank for _, rank, _, _, _ in joined) == list(range(count))
            assert {number for number, *_ in joined} == {expected}
            assert {size for _, _, size, _, _ in joined} == {count}
            ((host, port),) = {(host, port) for *_, host, port in joined}
            assert host == "127.0.0.1" and 0 < port < 65536
            if expected:
                assert [rank for _, rank, *_ in joined] == ranks, "members that stay keep their ranks"
            ranks = [rank for _, rank, *_ in joined]


def test_a_third_is_a_spare_and_moves_up_when_one_is_killed(address, run):
    settings = {"run": run, "min_nodes": 2, "max_nodes": 2, **SHORT}
    with members.members(address, 2, **settings) as (first, second), members.members(address, 1, **settings) as (third,):
        joined = [first.ask("join()"), second.ask("join()")]
        ranks = [member.value()[1] for member in joined]
        third.ask("join()")
        with pytest.raises(queue.Empty):
            third.hear(1.0)
        assert first.ask("rendezvous.num_nodes_waiting()").value() == 0, "a spare does not wait for a round"
        second.kill()
        # It is missed, so the spare waits for the next round; the survivor sees that, and joins it.
        until = time.monotonic() + 10
        while first.ask("rendezvous.num_nodes_waiting()").value() == 0:
            assert time.monotonic() < until
            time.sleep(0.05)
        first.ask("join()")
        again, moved = first.value(), third.value()
        assert again[0] == moved[0] == 1 and again[2] == moved[2] == 2
        assert again[1] == ranks[0] and moved[1] == ranks[1] and again[3:] == moved[3:]


def test_a_rank_0_that_dies_before_it_says_where_it_is_costs_a_round(address, run):
    settings = {"min_nodes": 1, "max_nodes": 2, "expected": None, "last_call_timeout": 0.5, "heartbeat_timeout": 0.4, **SHORT}
    # Members of a process are ordered as they were made.
    mute = Rendezvous(address, run, **settings)
    with Rendezvous(address, run, **settings) as other:
        ended = []

        def die():
            raise RuntimeError("dies")

        def join():
            try:
                mute._next(die, 60)
            except RuntimeError as error:
                ended.append(str(error))

        thread = threading.Thread(target=join)
        thread.start()
        here = other.next_rendezvous()
        thread.join(10)
        assert ended == ["dies"]
        assert (here.round, here.rank, here.world_size) == (1, 0, 1)


def test_leases_are_kept_up_while_python_is_busy(address, run):
    settings = {"run": run, "min_nodes": 2, "max_nodes": 2, **SHORT}
    with members.members(address, 3, **settings) as (first, second, third):
        first.ask("join()"), second.ask("join()")
        assert first.value()[0] == second.value()[0] == 0
        # Holds the interpreter's lock for longer than the lease.
        first.ask("sys.set_int_max_str_digits(0) or len(str(3 ** 2_500_000))")
        time.sleep(1.2)
        third.ask("join()")
        time.sleep(0.2)
        assert second.ask("rendezvous.num_nodes_waiting()").value() == 0, "the third is a spare: the others are alive"
        assert first.answers.empty(), "it was busy all the time"


def test_closing_is_for_good_and_for_all(address, run):
    settings = {"min_nodes": 1, "max_nodes": 1}
    with alone(address, run) as rendezvous:
        assert not rendezvous.is_closed()
        rendezvous.next_rendezvous()
        outcomes = []
        spare = Rendezvous(address, run, **settings)

        def join():
            try:
                spare.next_rendezvous()
            except Exception as error:
                outcomes.append(error)

        thread = threading.Thread(target=join)
        thread.start()
        time.sleep(0.3)
        rendezvous.set_closed()
        rendezvous.set_closed()
        thread.join(10)
        assert isinstance(outcomes[0], RendezvousGracefulExit), "a spare exits in peace"
        assert rendezvous.is_closed() and spare.is_closed()
        for member in (rendezvous, Rendezvous(address, run, **settings)):
            with pytest.raises(RendezvousClosed, match=f"`{run}` is closed"):
                member.next_rendezvous()
        assert rendezvous.shutdown() and rendezvous.shutdown()


def test_a_run_can_be_closed_before_anybody_has_joined(address, run):
    with alone(address, run) as rendezvous:
        assert rendezvous.shutdown() and rendezvous.is_closed()
        with pytest.raises(RendezvousClosed):
            rendezvous.next_rendezvous()


def test_a_member_joins_once_at_a_time(address, run):
    with alone(address, run, min_nodes=2, max_nodes=2) as rendezvous:
        outcomes = []

        def join():
            try:
                rendezvous.next_rendezvous()
            except Exception as error:
                outcomes.append(error)

        threads = [threading.Thread(target=join) for _ in range(2)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 10
        while not outcomes:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert isinstance(outcomes[0], RuntimeError) and "one call at a time" in str(outcomes[0])
        # It may not be on the list yet, so it is asked to leave until it has.
        while any(thread.is_alive() for thread in threads):
            assert time.monotonic() < until
            with contextlib.suppress(ValueError):
                rendezvous.leave()
            time.sleep(0.02)
        assert isinstance(outcomes[1], RuntimeError) and "has left" in str(outcomes[1])


def test_leaving_is_not_closing(address, run):
    with alone(address, run) as first:
        assert first.next_rendezvous().round == 0
        first.leave()
        with alone(address, run) as second:
            assert second.next_rendezvous().round == 1
            assert not second.is_closed()


def test_a_join_ends_when_its_time_does(address, run):
    began = time.monotonic()
    with alone(address, run, min_nodes=2, max_nodes=2, join_timeout=0.5) as rendezvous:
        with pytest.raises(RendezvousTimeout, match="within 500ms") as caught:
            rendezvous.next_rendezvous()
        assert isinstance(caught.value, TimeoutError)
    assert 0.5 <= time.monotonic() - began < 5


def test_members_of_another_run_are_of_no_use(address, run):
    both = {"min_nodes": 2, "max_nodes": 2}
    with members.members(address, 1, run=f"{run} a", **both) as (other,):
        other.ask("join()")
        with alone(address, f"{run} b", join_timeout=0.5, **both) as lonely, pytest.raises(RendezvousTimeout):
            lonely.next_rendezvous()
        with alone(address, f"{run} a", **both) as third:
            assert third.next_rendezvous().world_size == other.value()[2] == 2


def test_the_last_call_ends_early_when_everyone_expected_is_there(address, run):
    began = time.monotonic()
    with alone(address, run, max_nodes=4, last_call_timeout=0.4) as rendezvous:
        assert rendezvous.next_rendezvous().world_size == 1
        assert time.monotonic() - began >= 0.4
    began = time.monotonic()
    with alone(address, f"{run} expected", max_nodes=4, expected=1) as rendezvous:
        assert rendezvous.next_rendezvous().world_size == 1
    assert time.monotonic() - began < 5


def test_tokens(binary, tmp_path):
    token = tmp_path / "token"
    token.write_text("sesame-sesame-sesame\n")
    token.chmod(0o600)
    with members.coordinator(binary, "--token-file", str(token)) as address:
        for wrong in (None, "tahini-tahini-tahini"):
            with alone(address, "t", token=wrong) as rendezvous:
                with pytest.raises(PermissionError, match="token"):
                    rendezvous.next_rendezvous()
                with pytest.raises(PermissionError):
                    rendezvous.set_closed()
                assert not rendezvous.shutdown()
        for right in (token, "sesame-sesame-sesame"):
            with alone(address, "t", token=right) as rendezvous:
                assert rendezvous.next_rendezvous().rank == 0


def test_nobody_there_is_a_connection_error():
    began = time.monotonic()
    with alone("127.0.0.1:1", "r", join_timeout=0.5, heartbeat_timeout=0.5) as rendezvous:
        with pytest.raises(ConnectionError, match="no coordinator answers at 127.0.0.1:1"):
            rendezvous.next_rendezvous()
        with pytest.raises(ConnectionError):
            rendezvous.is_closed()
    assert time.monotonic() - began < 10


def test_what_cannot_be_is_refused(address, run):
    fine = {"min_nodes": 1, "max_nodes": 2}
    for wrong, message in [
        ({"min_nodes": 0}, "min_nodes is 0"),
        ({"min_nodes": 3}, "fewer than the fewest"),
        ({"max_nodes": 1.5}, "max_nodes is 1.5"),
        ({"join_timeout": 0}, "join_timeout is 0"),
        ({"last_call_timeout": -1}, "last_call_timeout is -1"),
        ({"join_timeout": "5"}, "join_timeout is '5'"),
        ({"keep_alive_interval": "x"}, "keep_alive_interval is 'x'"),
        ({"close_timeout": float("nan")}, "close_timeout is NaN"),
        ({"heartbeat_timeout": 0}, "heartbeat_timeout is 0"),
        ({"keep_alive_interval": 0}, "keep_alive_interval is 0"),
        ({"keep_alive_max_attempt": 0}, "keep_alive_max_attempt is 0"),
        ({"expected": 3}, "3 participants are expected"),
        ({"tls": {"cert": "a"}}, "tls needs ca"),
    ]:
        with pytest.raises(ValueError, match=message):
            Rendezvous(address, run, **{**fine, **wrong})
    for url, name, message in [
        (address, "", "not empty"),
        (address, None, "not empty"),
        (address, "x" * 300, "at most 256"),
        ("http://h:1", "r", "is not known"),
        ("h:99999", "r", "99999"),
        (f"{address}/a", "b", "name it once"),
    ]:
        with pytest.raises(ValueError, match=message):
            Rendezvous(url, name, **fine)
    assert Rendezvous(f"graphmill://{address}/a", **fine).run == "a"
    with Rendezvous(address, run, expected=1, **fine) as first, Rendezvous(address, run, **fine) as other:
        first.next_rendezvous()
        with pytest.raises(ValueError, match="expected"):
            other.next_rendezvous()


def test_this_hosts_own_address(address, run):
    with alone(address, run, local_addr="node-7.example") as rendezvous:
        assert rendezvous.local_addr == rendezvous.node[0] == rendezvous.next_rendezvous().master_addr == "node-7.example"
    for url in ("127.0.0.1:4300", "", "localhost:1/run", "graphmill://127.0.0.1/run"):
        assert own_address(url) == "127.0.0.1"
    assert own_address("[::1]:1") == own_address("::1") == "::1"
    assert own_address("no-such-host.invalid:1")


def test_a_signal_ends_the_wait_and_takes_leave(address, run):
    with members.members(address, 1, run=run, min_nodes=2, max_nodes=2) as (member,):
        member.ask("join()")
        time.sleep(0.4)
        began = time.monotonic()
        member.process.send_signal(signal.SIGINT)
        assert member.hear(5)[0] == "KeyboardInterrupt"
        assert time.monotonic() - began < 2
        # Nobody counts on it any more, and it can come back.
        with alone(address, run, min_nodes=2, max_nodes=2, join_timeout=0.3) as other:
            with pytest.raises(RendezvousTimeout):
                other.next_rendezvous()
        member.ask("join()")
        with alone(address, run, min_nodes=2, max_nodes=2) as other:
            assert other.next_rendezvous().world_size == member.value()[2] == 2


def test_a_forked_child_neither_uses_nor_ends_its_parents_member(address, run):
    with alone(address, run, **SHORT) as rendezvous:
        here = rendezvous.next_rendezvous()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(RuntimeError, match="fork"):
                    rendezvous.next_rendezvous()
                with pytest.raises(RuntimeError, match="fork"):
                    rendezvous.shutdown()
                with pytest.raises(RuntimeError, match="fork"):
                    here.store.check(["x"])
                own = Rendezvous(address, f"{run} child", min_nodes=1, max_nodes=1)
                assert own.next_rendezvous().rank == 0
                del rendezvous, here
                code = 0
            finally:
                os._exit(code)
        until = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert ended[1] == 0
        time.sleep(0.8)
        here.store.set("still", "here")


def test_the_store(address, run):
    with alone(address, run) as rendezvous:
        store = rendezvous.next_rendezvous(master_port=4711).store
        store.set("text", "é")
        assert store.get("text") == "é".encode()
        store.multi_set({"a/1": b"one", "a/2": b"\0two"})
        assert store.multi_get(["a/2", "a/1"]) == [b"\0two", b"one"]
        assert store.check(["a/1", "a/2"]) and not store.check(["a/1", "a/3"])
        assert store.add("n") == 1 and store.add("n", 41) == 42 and store.get("n") == b"42" and store.add("n", -50) == -8
        with pytest.raises(ValueError, match="no number"):
            store.add("text")
        assert store.compare_set("c", b"", "1") == b"1" and store.compare_set("c", "0", "2") == b"1"
        assert store.compare_set("c", "1", "2") == b"2"
        with pytest.raises(KeyError, match="no key"):
            store.compare_set("missing", "1", "2")
        store.append("c", "3")
        assert store.get("c") == b"23"
        assert store.delete("c") and not store.delete("c")
        assert store.count("a/") == 2 and store.count() == 5
        scoped = store.prefixed("a/")
        assert scoped.get("1") == b"one" and scoped.count() == 2 and not scoped.check(["text"])
        with pytest.raises(TimeoutError, match="later"):
            store.get("later", timeout=0.2)
        with pytest.raises(TypeError):
            store.wait("later")
        with pytest.raises(TypeError):
            store.set("number", 5)
        with pytest.raises(ValueError, match="holds 1048576 bytes"):
            store.set("large", bytes(2 << 20))
        waiting = threading.Timer(0.2, store.set, ("later", "now"))
        waiting.start()
        store.wait(["later", "text"], timeout=10)
        assert store.get("later") == b"now"
        assert store.get("graphmill/master") == b"4711 127.0.0.1"
        # Each round has its own.
        assert not rendezvous.next_rendezvous().store.check(["text"])
        assert store.get("text") == "é".encode(), "the round before is still there"
