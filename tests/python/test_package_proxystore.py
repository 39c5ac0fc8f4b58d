"""ProxyStore's own package on our connector, over every transport."""

import gc
import pickle
import time

import numpy as np
import pytest
import stores
from proxystore.connectors.protocols import Connector as Protocol
from proxystore.connectors.protocols import DeferrableConnector
from proxystore.proxy import Proxy, ProxyResolveError, is_resolved, resolve
from proxystore.store import Store, get_store, register_store, unregister_store
from proxystore.store.config import StoreConfig
from proxystore.store.exceptions import ProxyResolveMissingKeyError
from proxystore.store.lifetimes import ContextLifetime, LeaseLifetime
from proxystore.store.ref import borrow, clone, into_owned, mut_borrow, update

from graphmill.objects import Connector


@pytest.fixture
def store(connector):
    # Without a cache, so that all that is got comes from the connector.
    with Store("test", connector, cache_size=0, register=True, metrics=True) as store:
        yield store


def test_the_protocols_are_followed(connector):
    assert isinstance(connector, Protocol) and isinstance(connector, DeferrableConnector)


def test_objects_of_all_kinds(store):
    large = np.random.default_rng(3).random(400_000)
    for value in (b"bytes", "text", [1, {"two": 3}], None, b"b" * 1_000_000):
        key = store.put(value)
        assert store.exists(key) and store.get(key) == value
        store.evict(key)
        assert not store.exists(key) and store.get(key, default=0) == 0
    np.testing.assert_array_equal(store.get(store.put(large)), large)
    keys = store.put_batch(["a", "b" * 100_000, large])
    assert [store.get(key) for key in keys[:2]] == ["a", "b" * 100_000]
    with pytest.raises(ValueError, match="ttl"):
        store.put(b"", ttl=-1)


def test_proxies(store):
    proxy = store.proxy([1, 2, 3])
    assert isinstance(proxy, Proxy) and pickle.loads(pickle.dumps(proxy)) == [1, 2, 3]
    many = store.proxy_batch([f"value {number}" for number in range(50)])
    assert [str(one) for one in pickle.loads(pickle.dumps(many))] == [f"value {number}" for number in range(50)]
    once = store.proxy("evicted when resolved", evict=True, populate_target=False)
    twice = pickle.loads(pickle.dumps(once))
    assert once == "evicted when resolved"
    with pytest.raises(ProxyResolveError) as raised:
        resolve(twice)
    assert isinstance(raised.value.__cause__, ProxyResolveMissingKeyError)
    locked = store.locked_proxy({"x": 1})
    assert locked.unlock() == {"x": 1}


def test_proxies_resolve_in_other_processes(store):
    proxies = store.proxy_batch([{"n": 41}, b"l" * 500_000], populate_target=False)
    with stores.worker() as worker:
        expression = f"(lambda a, b: [a['n'] + 1, len(b)])(*pickle.loads({pickle.dumps(proxies)!r}))"
        assert worker.ask(expression).value(60) == [42, 500_000]


def test_owned_proxies(store):
    owned = store.owned_proxy([1, 2])
    key = owned.__proxy_factory__.key
    borrowed = borrow(owned)
    assert borrowed == [1, 2]
    del borrowed
    changed = mut_borrow(owned)
    changed.append(3)
    update(changed)
    del changed
    assert store.get(key) == [1, 2, 3]
    copy = clone(owned)
    assert copy == [1, 2, 3] and copy.__proxy_factory__.key != key
    del copy
    gc.collect()
    assert store.exists(key)
    del owned
    gc.collect()
    assert not store.exists(key), "it ends with its owner"
    other = into_owned(store.proxy("x"))
    key = other.__proxy_factory__.key
    del other
    gc.collect()
    assert not store.exists(key)


def test_futures(store):
    future = store.future(polling_interval=0.05, polling_timeout=20)
    proxy = future.proxy()
    assert not future.done() and not is_resolved(proxy)
    with stores.worker() as worker:
        sent = pickle.dumps(future)
        worker.ask(f"time.sleep(0.3) or pickle.loads({sent!r}).set_result('from afar')")
        assert future.result() == "from afar" and proxy == "from afar" and future.done()
        assert worker.value(60) is None
    late = store.future(polling_interval=0.05, polling_timeout=0.2)
    with pytest.raises(ProxyResolveMissingKeyError):
        late.result()


def test_lifetimes(store):
    with ContextLifetime(store) as lifetime:
        keys = [store.put("a", lifetime=lifetime), *store.put_batch(["b", "c"], lifetime=lifetime)]
        proxy = store.proxy("d", lifetime=lifetime)
        assert all(map(store.exists, keys)) and proxy == "d"
    assert not any(map(store.exists, [*keys, proxy.__proxy_factory__.key]))
    lease = LeaseLifetime(store, expiry=0.3)
    key = store.put("leased", lifetime=lease)
    assert store.exists(key)
    stores.until(lambda: not store.exists(key), "the lease ends")
    assert lease.done()


def test_a_stores_configuration_survives_files_and_processes(store, tmp_path):
    store.config().write_toml(tmp_path / "store.toml")
    config = StoreConfig.from_toml(tmp_path / "store.toml")
    assert config.connector == store.config().connector
    key = store.put("kept")
    unregister_store(store)
    with Store.from_config(config) as other:
        register_store(other, exist_ok=True)
        assert isinstance(other.connector, Connector) and other.get(key) == "kept"
        assert get_store("test") is other
    register_store(store, exist_ok=True)
    assert store.get(key) == "kept"


def test_a_failure_reaches_the_caller(store, connector):
    began = time.monotonic()
    factory = store.proxy("gone").__proxy_factory__
    store.evict(factory.key)
    with pytest.raises(ProxyResolveMissingKeyError):
        factory.resolve()
    assert time.monotonic() - began < 20
    assert store.metrics.get_metrics(factory.key) is not None
