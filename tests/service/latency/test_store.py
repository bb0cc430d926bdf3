import logging

from service.latency import store
from service.latency.curves import Curve, Measurements
from service.latency.store import LatencyStore, directories, store_key

KNOWN = Measurements(curves={(64, "float"): Curve((1,), (2.0,))}, build_ms={"float": 9.0})


def test_what_was_kept_is_found_again(tmp_path):
    store = LatencyStore([tmp_path / "new"], "key")
    assert store.load() is None
    assert store.save(KNOWN) == tmp_path / "new" / "latency-key.json"
    assert store.load() == KNOWN
    assert LatencyStore([tmp_path / "new"], "other").load() is None


def test_the_next_directory_is_tried(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    store = LatencyStore([blocked / "x", tmp_path / "good"], "key")
    assert store.save(KNOWN).parent == tmp_path / "good"
    assert store.load() == KNOWN


def test_a_damaged_file_is_measured_again(tmp_path, caplog):
    store = LatencyStore([tmp_path], "key")
    for damage in (
        b"",
        b"{",
        b"[]",
        b'{"format": 1}',
        b'{"format": 1, "forward": [], "decode": {}}',
    ):
        (tmp_path / "latency-key.json").write_bytes(damage)
        with caplog.at_level(logging.WARNING):
            assert store.load() is None
    assert "ignoring" in caplog.text


def test_nowhere_to_write_is_a_warning(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with caplog.at_level(logging.WARNING):
        assert LatencyStore([blocked / "x"], "key").save(KNOWN) is None
    assert "measured again" in caplog.text


def test_keys_differ_with_every_part(tmp_path):
    keys = {store_key("a", "b"), store_key("ab", ""), store_key("a", "c"), store_key("b", "a")}
    assert len(keys) == 4


def test_keys_differ_with_the_cpu_and_its_quota_but_not_with_the_hosts_name(monkeypatch):
    before = store_key("a")
    monkeypatch.setattr("platform.node", lambda: "another")
    assert store_key("a") == before
    monkeypatch.setattr(store, "cpu_quota", lambda: 0.5)
    half = store_key("a")
    monkeypatch.setattr(store, "cpu_model", lambda: "another")
    assert len({before, half, store_key("a")}) == 3


def test_where_it_is_kept(tmp_path, monkeypatch):
    assert directories(tmp_path / "c") == [tmp_path / "c"]
    monkeypatch.delenv("SAN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert directories(None) == [tmp_path / "x" / "san-serve"]
    monkeypatch.setenv("SAN_CACHE_DIR", str(tmp_path / "y"))
    assert directories(None) == [tmp_path / "y"]
