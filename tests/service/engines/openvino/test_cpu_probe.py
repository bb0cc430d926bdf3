"""What is concluded from trials that live, lie or die."""

from collections.abc import Callable
from pathlib import Path

import pytest

from service.engines.openvino import cpu_probe
from service.engines.openvino.cpu_probe import (
    ISA_VARIABLE,
    ISAS,
    CpuDecision,
    Outcome,
    Trial,
    decide,
    probe,
)

HEALTHY = {
    "f32": Trial(1e-6, 2.0),
    "int8": Trial(0.002, 0.8),
    "int8_full_range": Trial(0.001, 0.5),
    "bf16": Trial(1e-6, 2.0),
}


def host(outcomes: dict[str, Outcome]) -> Callable[[str], Outcome]:
    """A machine, by what each limit leads to."""
    return lambda isa: outcomes[isa]


def test_a_healthy_host_has_no_limit() -> None:
    decision = decide(host({"": Outcome(HEALTHY)}))
    assert decision.isa == ""
    assert decision.precision == "f32"
    assert decision.int8
    assert not decision.saturates
    assert decision.usable


def test_a_host_that_lies_about_amx_is_limited() -> None:
    killed = Outcome({"f32": Trial(1e-6, 2.0)}, "killed by SIGILL")
    decision = decide(host({"": killed, "AVX512_CORE_FP16": Outcome(HEALTHY)}))
    assert decision.isa == "AVX512_CORE_FP16"
    assert decision.int8
    assert "SIGILL" in decision.reason


def test_real_bfloat16_is_used_where_it_pays() -> None:
    fast = HEALTHY | {"bf16": Trial(0.005, 0.9)}
    assert decide(host({"": Outcome(fast)})).precision == "bf16"


@pytest.mark.parametrize(
    "bf16",
    [
        Trial(0.005, 1.9),  # right but not faster
        Trial(0.5, 0.5),  # fast but wrong
        Trial(1e-6, 1.0),  # float32 under another name, on a busy machine
    ],
)
def test_other_bfloat16_is_not_used(bf16: Trial) -> None:
    decision = decide(host({"": Outcome(HEALTHY | {"bf16": bf16})}))
    assert decision.precision == "f32"
    assert ("no bf16" in decision.reason) == (bf16.error != 0.005)


def test_a_cpu_without_vnni_is_found_out_by_its_results() -> None:
    decision = decide(host({"": Outcome(HEALTHY | {"int8_full_range": Trial(0.49, 0.5)})}))
    assert decision.int8
    assert decision.saturates


def test_float32_alone_will_do() -> None:
    no_int8 = Outcome({"f32": HEALTHY["f32"], "int8": Trial(0.9, 0.1)})
    decision = decide(lambda isa: no_int8)
    assert decision.usable
    assert not decision.int8
    assert "wrong results in int8" in decision.reason


def test_a_host_on_which_nothing_runs_is_unusable() -> None:
    decision = decide(lambda isa: Outcome({}, "killed by SIGILL"))
    assert not decision.usable
    assert decision.reason.count("SIGILL") == len(ISAS)


def test_the_decision_is_kept(tmp_path: Path) -> None:
    first = probe(tmp_path, lambda isa: Outcome(HEALTHY), key="boot")
    again = probe(tmp_path, lambda isa: pytest.fail("probed again"), key="boot")
    assert again == first


def test_another_boot_probes_again(tmp_path: Path) -> None:
    probe(tmp_path, lambda isa: Outcome(HEALTHY), key="boot")
    other = probe(tmp_path, lambda isa: Outcome({}, "killed by SIGILL"), key="next boot")
    assert not other.usable


@pytest.mark.parametrize("content", ["", "[]", '{"isa": ""}', "{"])
def test_a_damaged_decision_is_made_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "cpu-boot.json").write_text(content)
    assert probe(tmp_path, lambda isa: Outcome(HEALTHY), key="boot").int8


def test_an_operators_limit_is_the_only_one_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ISA_VARIABLE, "SSE41")
    tried = []

    def run(isa: str) -> Outcome:
        tried.append(isa)
        return Outcome({}, "killed by SIGILL")

    assert not probe(tmp_path, run).usable
    assert tried == ["SSE41"]


def test_applying_sets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ISA_VARIABLE, raising=False)
    cpu_probe.apply(CpuDecision("", "f32", True, False, ""))
    assert ISA_VARIABLE not in cpu_probe.os.environ
    cpu_probe.apply(CpuDecision("AVX2", "f32", True, False, ""))
    assert cpu_probe.os.environ[ISA_VARIABLE] == "AVX2"


def test_this_host_can_be_probed() -> None:
    """With real child processes: under some limit float32 comes out right wherever tests run."""
    assert decide(cpu_probe.run_trial).usable


def test_a_child_that_is_killed_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, signal\n"
        'print(\'{"trial": "f32", "error": 1e-6, "ms": 1.0}\', flush=True)\n'
        "os.kill(os.getpid(), signal.SIGILL)\n"
    )
    monkeypatch.setattr(cpu_probe, "_TRIAL", script)
    outcome = cpu_probe.run_trial("")
    assert outcome.right("f32")
    assert outcome.ending == "killed by SIGILL"


def test_a_child_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import no_such_module_here\n")
    monkeypatch.setattr(cpu_probe, "_TRIAL", script)
    assert "no_such_module_here" in cpu_probe.run_trial("").ending
