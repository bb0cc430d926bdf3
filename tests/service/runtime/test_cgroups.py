"""Limits of control groups, read from a tree of files like the kernel's."""

import os

import pytest

from service.runtime import cores
from service.runtime.cgroups import cpu_quota, granted_cores, memory_limit, memory_room


@pytest.fixture
def host(tmp_path):
    def write(**files: str):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return tmp_path

    return write


CGROUP = "sys/fs/cgroup"
SELF = "proc/self/cgroup"


def test_without_control_groups_there_is_no_limit(tmp_path):
    assert granted_cores(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max 100000", None),
        ("400000 100000", 4),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("200000 0", None),
        ("garbage", None),
        ("", None),
    ],
)
def test_a_quota_of_version_2(host, text, found):
    root = host(**{SELF: "0::/", f"{CGROUP}/cpu.max": text})
    assert granted_cores(root) == found


@pytest.mark.parametrize(("quota", "found"), [("-1", None), ("300000", 3), ("150000", 1)])
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_version_1(host, mount, quota, found):
    # A container's mount shows its own group at the root, whatever path the host knows it by.
    root = host(
        **{
            SELF: "5:cpu,cpuacct:/docker/0a1b\n4:memory:/docker/0a1b\n1:name=systemd:/docker/0a1b",
            f"{CGROUP}/{mount}/cpu.cfs_quota_us": quota,
            f"{CGROUP}/{mount}/cpu.cfs_period_us": "100000",
        }
    )
    assert granted_cores(root) == found


def test_a_unit_of_the_host_finds_its_own_group_and_those_above(host):
    unit = "system.slice/san.service"
    root = host(
        **{
            SELF: f"0::/{unit}",
            f"{CGROUP}/system.slice/cpu.max": "600000 100000",
            f"{CGROUP}/{unit}/cpu.max": "800000 100000",
        }
    )
    assert granted_cores(root) == 6
    host(**{f"{CGROUP}/{unit}/cpu.max": "300000 100000"})
    assert granted_cores(root) == 3


@pytest.mark.parametrize(
    ("cpus", "found"),
    [("0-3", 4), ("0,2,4-6", 5), ("7", 1), ("", None), ("none", None)],
)
def test_a_cpuset_of_either_version(host, tmp_path, cpus, found):
    root = host(**{SELF: "0::/", f"{CGROUP}/cpuset.cpus.effective": cpus})
    assert granted_cores(root) == found
    (root / CGROUP / "cpuset.cpus.effective").unlink()
    host(
        **{
            SELF: "3:cpuset:/kubepods/pod1",
            f"{CGROUP}/cpuset/kubepods/pod1/cpuset.cpus": cpus,
        }
    )
    assert granted_cores(root) == found


def test_the_tightest_limit_counts(host):
    root = host(
        **{
            SELF: "0::/app",
            f"{CGROUP}/app/cpu.max": "500000 100000",
            f"{CGROUP}/app/cpuset.cpus.effective": "0-1",
        }
    )
    assert granted_cores(root) == 2


def test_a_path_that_leads_out_of_the_mount_is_not_followed(host):
    root = host(
        **{
            SELF: "0::/../../../outside",
            f"{CGROUP}/cpu.max": "max 100000",
            "outside/cpu.max": "100000 100000",
        }
    )
    assert granted_cores(root) is None


@pytest.mark.parametrize(("granted", "found"), [(None, 8), (3, 3), (64, 8)])
def test_affinity_and_groups_bind_together(monkeypatch, granted, found):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "granted_cores", lambda: granted)
    assert cores.available_cores() == found


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "50000 100000"}, 0.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 1.5),
        ({}, None),
    ],
)
def test_a_quota_is_a_share_of_cores(tmp_path, files, quota):
    write(tmp_path, files)
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "4294967296"}, 4 << 30),
        ({"memory.max": "max"}, None),
        ({"memory/memory.limit_in_bytes": "1000"}, 1000),
        ({"memory/memory.limit_in_bytes": str(0x7FFFFFFFFFFFF000)}, None),
    ],
)
def test_a_memory_limit_is_found(tmp_path, files, limit):
    write(tmp_path, files)
    assert memory_limit(tmp_path) == limit


@pytest.mark.parametrize(
    ("files", "room"),
    [
        ({"memory.max": "max", "memory.current": "5"}, None),
        (
            {
                "memory.max": "1000",
                "memory.current": "900",
                "memory.stat": "anon 600\ninactive_file 200",
            },
            300,
        ),
        ({"memory.max": "1000", "memory.current": "1100"}, 0),
        (
            {
                "memory/memory.limit_in_bytes": "1000",
                "memory/memory.usage_in_bytes": "700",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100",
            },
            400,
        ),
    ],
)
def test_files_pages_are_room(tmp_path, files, room):
    write(tmp_path, files)
    assert memory_room(tmp_path) == room


def write(root, files):
    (root / "proc/self").mkdir(parents=True)
    lines = "4:memory:/\n3:cpu:/\n0::/\n"
    (root / "proc/self/cgroup").write_text(lines)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
