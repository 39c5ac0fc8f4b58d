"""The object store from Python, over every transport: bytes, batches, keys before their objects, arrays, and how it says no."""

import json
import pickle
import threading
import time

import numpy as np
import packages
import pytest
import stores
import torch

from graphmill.objects import Connector, Key

MANY = 3_000_000


def is_copied(config) -> bool:
    return config["address"].startswith("redis:") or not config.get("shared_memory", True)


def test_what_goes_in_comes_out(connector):
    rng = np.random.default_rng(5)
    for size in (0, 1, 1000, (64 << 10) - 1, 64 << 10, (1 << 20) + 1, MANY):
        content = rng.bytes(size)
        for value in (content, bytearray(content), memoryview(content), np.frombuffer(content, np.uint8)):
            key = connector.put(value)
            assert key.size == size and connector.exists(key)
            found = connector.get(key)
            assert isinstance(found, memoryview) and found == content
            connector.evict(key)
            connector.evict(key)
            assert not connector.exists(key) and connector.get(key) is None
            assert found == content, "whoever got it keeps it"


def test_numbers_are_stored_as_their_bytes(connector):
    numbers = np.arange(1000, dtype=np.float64)
    assert connector.get(connector.put(numbers)) == numbers.tobytes()
    with pytest.raises(BufferError, match="one piece"):
        connector.put(memoryview(b"abcdef")[::2])
    for wrong in ("text", 5, None, [b"a"]):
        with pytest.raises(TypeError, match="bytes-like"):
            connector.put(wrong)


def test_batches_have_the_order_of_what_they_were_asked_for(connector):
    contents = [bytes([number % 251]) * (number * 37 % 5000) for number in range(300)] + [b"x" * MANY, b""]
    keys = connector.put_batch(contents)
    assert len(set(keys)) == len(contents)
    gone = connector.new_key()
    connector.evict(keys[7])
    found = connector.get_batch([*reversed(keys), gone])
    assert found.pop() is None and found[-8] is None
    found[-8] = contents[7]
    assert found == contents[::-1]
    assert connector.put_batch([]) == [] and connector.get_batch([]) == []


def test_keys_come_before_their_objects(connector):
    key = connector.new_key()
    assert key.size is None and not connector.exists(key) and connector.get(key) is None
    began = time.monotonic()
    assert connector.get(key, wait=0.3) is None
    assert 0.3 <= time.monotonic() - began < 10
    for content in (b"first", b"y" * MANY, b""):
        connector.set(key, content)
        assert connector.get(key) == content and connector.exists(key)


def test_who_waits_is_sent_the_object_when_it_is_set(connector):
    key = connector.new_key(b"not looked at")
    found = []
    threads = [threading.Thread(target=lambda: found.append(connector.get(key, wait=30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.4)
    assert not found
    connector.set(key, b"now")
    for thread in threads:
        thread.join(20)
    assert found == [b"now"] * 3


def test_objects_live_as_long_as_they_are_told(connector):
    short, long = connector.put(b"short", ttl=0.2), connector.put(b"long", ttl=600)
    key = connector.new_key()
    connector.set(key, b"short too", ttl=0.2)
    stores.until(lambda: not connector.exists(short) and connector.get(key) is None, "they expire")
    assert connector.get(long) == b"long"
    for wrong in (-1, float("nan"), 1e12):
        with pytest.raises(ValueError, match="ttl is"):
            connector.put(b"", ttl=wrong)


def test_keys_are_plain_and_travel(connector):
    key = connector.put(b"1234567")
    again = pickle.loads(pickle.dumps(key))
    assert again == key and hash(again) == hash(key) and isinstance(key, tuple)
    assert Key(str(key)) == key and str(key).startswith("graphmill+") and key.id in str(key)
    assert str(key).startswith(f"{key.location}/{key.id}?size=7")
    assert len(key.id) == 32 and key.size == 7
    assert connector.get(again) == b"1234567"


def test_what_is_no_key_is_refused(connector):
    for call in (connector.get, connector.exists, connector.evict, lambda key: connector.set(key, b"")):
        with pytest.raises(ValueError, match="not a key") as caught:
            call(Key("graphmill+tcp://nonsense"))
        assert caught.value.kind == "bad_key"
        with pytest.raises(TypeError, match="expected a key, got str"):
            call("graphmill+tcp://nonsense")
    with pytest.raises(ValueError, match="not a key"):
        connector.get_batch([connector.put(b"fine"), Key("x")])
    with pytest.raises(ValueError, match="not a key"):
        Key("x").size  # noqa: B018


def test_a_configuration_makes_the_same_connector(connector, config):
    key = connector.put(b"shared")
    plain = json.loads(json.dumps(connector.config()))
    assert plain == connector.config() and plain["address"] == config["address"]
    with Connector.from_config(plain) as other, pickle.loads(pickle.dumps(connector)) as third:
        assert other.config() == third.config() == plain
        assert other.get(key) == third.get(key) == b"shared"
    assert connector.get(key) == b"shared", "closing the others does not matter"
    connector.close()
    connector.close()
    assert connector.get(key) == b"shared", "a call connects again"


def test_threads_share_a_connector(connector):
    failed = []

    def work(number: int) -> None:
        try:
            for turn in range(30):
                content = f"{number} {turn} ".encode() * (1 + 40 * number * turn)
                assert connector.get(connector.put(content)) == content
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed


ARRAYS = [
    *(np.arange(24).astype(dtype).reshape(2, 3, 4) for dtype in ("f2", "f4", "f8", "i1", "u2", "i8", "?", "c8", "c16", ">i4")),
    np.array(3.5), np.zeros((0, 7), "f4"), np.arange(20).reshape(4, 5).T[1:, ::2], np.array(["a", "bcd"]), np.array([b"xy"]),
    np.array(["2001-01-01", "2026-11-17"], "M8[ns]"), np.random.default_rng(1).random((700, 1000)),
]  # fmt: skip


def test_arrays_go_in_and_come_out(connector):
    for array in ARRAYS:
        found = connector.get_array(connector.put_array(array))
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)
        assert found.flags.writeable and found.flags.aligned
    key = connector.new_key()
    assert connector.get_array(key) is None
    connector.set_array(key, [1, 2, 3])
    np.testing.assert_array_equal(connector.get_array(key, wait=5), [1, 2, 3])


def test_tensors_go_in_and_come_out(connector):
    tensors = [torch.arange(12).reshape(3, 4), torch.rand(300, 400).t(), torch.rand(5).bfloat16(), torch.tensor(True)]
    for tensor in [*tensors, torch.zeros(0, 3), torch.rand(4, requires_grad=True)]:
        found = connector.get_array(connector.put_array(tensor), output="torch")
        assert found.dtype == tensor.dtype and torch.equal(found, tensor) and not found.requires_grad
    bits = connector.get_array(connector.put_array(tensors[2]))
    assert bits.dtype == np.uint16 and torch.equal(torch.from_numpy(bits).view(torch.bfloat16), tensors[2])
    np.testing.assert_array_equal(connector.get_array(connector.put_array(tensors[1])), tensors[1].numpy())

    class Foreign:
        """Speaks DLPack and nothing else."""

        def __dlpack__(self, **asked):
            return tensors[0].__dlpack__(**asked)

        def __dlpack_device__(self):
            return tensors[0].__dlpack_device__()

    np.testing.assert_array_equal(connector.get_array(connector.put_array(Foreign())), tensors[0].numpy())


def test_what_is_no_array_is_refused(connector):
    for wrong in (np.array([object()]), np.zeros(3, "i4,f4"), [[1], [1, 2]]):
        with pytest.raises(ValueError):
            connector.put_array(wrong)
    whole = bytes(connector.get(connector.put_array(np.arange(10))))
    edits = [
        (b"<i8", b"|O8"), (b'"<i8"', b"[[[[["), (b"[10]", b"null"), (b"[10]", b"10  "), (b"[10]}  ", b"[10.0]}"),
        (b"[10]}    ", b"[-2, -5]}"),
    ]  # fmt: skip
    edited = [whole.replace(*edit) for edit in edits]
    assert len({*edited, whole}) == len(edits) + 1
    for content in (b"", b"abc", b"x" * 500, whole[:-1], whole + b"x", *edited):
        with pytest.raises(ValueError, match="not an array"):
            connector.get_array(connector.put(content))
    with pytest.raises(ValueError, match="output is"):
        connector.get_array(connector.put_array([1]), output="jax")


def test_large_arrays_are_the_servers_own_memory(connector, config):
    array = np.random.default_rng(2).random(MANY // 8)
    key = connector.put_array(array)
    first, second = connector.get_array(key), connector.get_array(key, output="torch")
    files = [packages.mapping(first.ctypes.data), packages.mapping(second.data_ptr())]
    if is_copied(config):
        assert files == [None, None]
    else:
        assert files[0] is not None and files[0] == files[1], "both map what the server has, once"
        assert first.ctypes.data % 64 == 0
    # Edits are private, whoever they are made by.
    first[:] = 0
    second[5] = -1
    np.testing.assert_array_equal(connector.get_array(key), array)
    view = connector.get(key)
    view[100] ^= 255
    np.testing.assert_array_equal(connector.get_array(key), array)
    assert first[5] == 0 and second[4] == array[4] and second[5] == -1


def test_evicted_memory_stays_until_nobody_has_it(connector, config):
    if config["address"].startswith("redis:"):
        pytest.skip("Redis accounts for its memory itself")
    content = b"z" * MANY
    key = connector.put(content)
    found = connector.get(key)
    part = np.frombuffer(found, np.uint8)[5:]
    connector.evict(key)
    del found
    assert connector.get(key) is None and part.tobytes() == content[5:]
    charged = connector.stat()["used"]
    assert charged == 0 if is_copied(config) else charged >= MANY
    del part
    stores.until(lambda: connector.stat()["used"] == 0, "the memory is given back")


def test_errors_say_what_they_are(runtime_folder, tmp_path):
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    token.write_text("sesame-sesame-sesame\n")
    wrong.write_text("tahini-tahini-tahini\n")
    for file in (token, wrong):
        file.chmod(0o600)
    server = {"budget": 4 << 20, "object_limit": 3 << 20, "linger": 5}
    config = {"address": f"unix:{runtime_folder}/s", "token_file": token, "put_wait": 0.1, "spawn": {"server": server}}
    with stores.connected(config) as connector:
        with pytest.raises(ValueError, match="at most 3145728") as caught:
            connector.put(bytes(4 << 20))
        assert caught.value.kind == "too_large"
        kept = connector.put(b"k" * (3 << 20))
        with pytest.raises(MemoryError, match="budget") as caught:
            connector.put(bytes(2 << 20))
        assert caught.value.kind == "over_budget"
        # All or none, unless told otherwise.
        with pytest.raises(ValueError, match="at most"):
            connector.put_batch([b"small", bytes(4 << 20), b"fits"])
        assert connector.stat()["objects"] == 1
        first, failed, last = connector.put_batch([b"small", bytes(4 << 20), b"fits"], return_exceptions=True)
        assert isinstance(failed, ValueError) and failed.kind == "too_large"
        elsewhere = Key(str(first).replace(f"{runtime_folder}/s", f"{runtime_folder}/nobody"))
        found = connector.get_batch([last, elsewhere, first], return_exceptions=True)
        assert found[::2] == [b"fits", b"small"] and isinstance(found[1], ConnectionError)
        with pytest.raises(ConnectionError):
            connector.get_batch([last, elsewhere])
        for bad in (None, wrong):
            with pytest.raises(PermissionError, match="token") as caught:
                Connector(**{**config, "token_file": bad, "spawn": False})
            assert caught.value.kind == "denied"
        assert connector.get(kept) == b"k" * (3 << 20), "the server is well"
    for setting, message in [
        ({"deadline": -1}, "deadline is -1"),
        ({"address": "nowhere"}, "nowhere"),
        ({"address": "127.0.0.1:0"}, "port"),
        ({"spawn": {"servers": {}}}, "servers"),
        ({"spawn": {"server": {"budget": "much"}}}, "budget|much"),
        ({"wait": float("nan")}, "not plain data"),
        ({"token_file": tmp_path / "missing"}, "missing"),
    ]:
        with pytest.raises(ValueError, match=message):
            Connector(**{**config, **setting})
    with pytest.raises(ConnectionError, match="no object server") as caught:
        Connector(f"127.0.0.1:{stores.free_port()}", spawn=False)
    assert caught.value.kind == "unreachable"
    with pytest.raises(ConnectionError, match="cannot run") as caught:
        Connector(f"unix:{runtime_folder}/t", spawn={"command": ["/no/such/program"]})
    assert caught.value.kind == "start"


def test_passwords_are_not_shown(redis):
    address = redis()
    user = address.replace("redis://", "redis://default:secret-word@")
    with Connector(address) as connector:
        assert repr(connector) == f"Connector({address!r})"
    try:
        connector = Connector(user)
    except Exception as error:
        assert "secret-word" not in str(error)
    else:
        assert "secret-word" not in repr(connector) + str(connector.put(b""))
