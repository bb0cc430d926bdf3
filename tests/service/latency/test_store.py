import logging

from service.latency.model import Curve, Measurements
from service.latency.store import LatencyStore, candidates, fingerprint, store_key

KNOWN = Measurements(curves={(64, "float"): Curve((1,), (2.0,))}, build_ms={"float": 9.0})
KNOWN.ratios[(64, "float")] = [1.0, 1.5]


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
    (tmp_path / "f").write_bytes(b"x")
    assert len(fingerprint(tmp_path / "f")) == 64


def test_where_it_is_kept(tmp_path, monkeypatch):
    bundle = tmp_path / "b.safetensors"
    assert candidates(tmp_path / "c", bundle) == [tmp_path / "c"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert candidates(None, bundle) == [tmp_path / ".san-latency", tmp_path / "x" / "san-serve"]
