"""Which instructions and precisions this CPU really runs, found out in processes that may die.

CPU flags lie on some virtual machines: AMX is announced, and its first use is an illegal
instruction. So each instruction set is tried in a child process, the widest first, and the first
that survives is the one the server uses. The answer is kept until the next boot.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from san_core.atomic import replacing

_log = logging.getLogger(__name__)

ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"
ISAS = ("", "AVX512_CORE_FP16", "AVX512_CORE", "AVX2")
"""What oneDNN may be limited to, widest first; empty is no limit."""

_TRIAL = Path(__file__).with_name("cpu_trial.py")
_TRIAL_SECONDS = 60.0
"""What does not end by then hangs, or the machine is too busy to tell. Chosen."""
_TOLERANCE = {"f32": 1e-4, "int8": 0.05, "int8_full_range": 0.05, "bf16": 0.05}
"""Largest relative error of a precision that is used: what rounding may do. Chosen."""
_WORTHWHILE = 1.3
"""How much faster bfloat16 must be than float32 to be worth its digits."""


@dataclass(frozen=True)
class Trial:
    """How one precision fared: relative error and milliseconds."""

    error: float
    ms: float


@dataclass(frozen=True)
class Outcome:
    """What came out of a child process: the trials it survived, and how it ended."""

    trials: Mapping[str, Trial]
    ending: str = ""
    """Why it ended early; empty if it did not."""

    def right(self, name: str) -> bool:
        """Whether a trial was survived with a right result."""
        return name in self.trials and self.trials[name].error <= _TOLERANCE[name]


@dataclass(frozen=True)
class CpuDecision:
    """How OpenVINO is to be run on this host, and why."""

    isa: str
    """Value of ONEDNN_MAX_CPU_ISA; empty sets no limit."""
    precision: str
    """What "float" means: f32 or bf16."""
    int8: bool
    """Whether int8 gives right results."""
    saturates: bool
    """Whether full-range int8 products overflow (no VNNI): weights then keep to half the range."""
    reason: str
    usable: bool = True


def decide(run: Callable[[str], Outcome], isas: Sequence[str] = ISAS) -> CpuDecision:
    """Try the instruction sets, widest first, and settle on the first in which everything works.

    `run` starts the trials under a limit. If int8 works nowhere, float32 alone will do.
    """
    seen: dict[str, Outcome] = {}
    reasons: list[str] = []
    for isa in isas:
        outcome = seen[isa] = run(isa)
        if outcome.right("f32") and outcome.right("int8") and not outcome.ending:
            return _settle(isa, outcome, reasons)
        reasons.append(f"{isa or 'no limit'}: {outcome.ending or _wrong(outcome)}")
    for isa, outcome in seen.items():
        if outcome.right("f32"):
            return CpuDecision(isa, "f32", False, True, "float32 only; " + "; ".join(reasons))
    return CpuDecision("", "f32", False, True, "; ".join(reasons), usable=False)


def _settle(isa: str, outcome: Outcome, reasons: list[str]) -> CpuDecision:
    f32, bf16 = outcome.trials["f32"], outcome.trials.get("bf16")
    # A host without the instructions computes in float32 whatever it is told: the same digits.
    real = bf16 is not None and outcome.right("bf16") and bf16.error > 10 * f32.error
    gain = f32.ms / bf16.ms if bf16 is not None and real else 0.0
    precision = "bf16" if gain >= _WORTHWHILE else "f32"
    saturates = not outcome.right("int8_full_range")
    said = [
        *reasons,
        f"{isa or 'no limit'}: runs",
        f"bf16 {gain:.1f}x f32" if gain else "no bf16",
        f"int8 {f32.ms / outcome.trials['int8'].ms:.1f}x f32"
        + (", overflows at full range" if saturates else ""),
    ]
    return CpuDecision(isa, precision, True, saturates, "; ".join(said))


def _wrong(outcome: Outcome) -> str:
    wrong = [name for name in ("f32", "int8") if not outcome.right(name)]
    return f"wrong results in {', '.join(wrong)}"


def run_trial(isa: str) -> Outcome:
    """Run the trials in a child process limited to an instruction set."""
    environment = dict(os.environ)
    if isa:
        environment[ISA_VARIABLE] = isa
    command = [sys.executable, str(_TRIAL)]
    try:
        child = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TRIAL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Outcome({}, f"the trial did not finish ({error})")
    trials = {}
    for line in child.stdout.splitlines():
        said = json.loads(line)
        trials[said["trial"]] = Trial(said["error"], said["ms"])
    return Outcome(trials, _ending(child.returncode, child.stderr))


def _ending(status: int, complaint: str) -> str:
    if status == 0:
        return ""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return complaint.strip().rpartition("\n")[2] or f"exit status {status}"


def host_key() -> str:
    """Name this boot of this machine with this OpenVINO: what a decision is valid for."""
    parts = [version("openvino"), os.environ.get(ISA_VARIABLE, "")]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/cpuinfo"):
        try:
            lines = Path(path).read_text().splitlines()
        except OSError:
            continue
        parts += [x for x in lines if not x.startswith(("cpu MHz", "bogomips", "processor"))]
    return hashlib.sha256("\n".join(sorted(set(parts))).encode()).hexdigest()[:16]


def probe(
    directory: Path | None, run: Callable[[str], Outcome] = run_trial, key: str | None = None
) -> CpuDecision:
    """Return the decision kept in `directory` for this boot, or make it and keep it there."""
    path = directory / f"cpu-{key or host_key()}.json" if directory else None
    if path is not None:
        try:
            return CpuDecision(**json.loads(path.read_text()))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:
            _log.warning("ignoring the CPU decision in %s: %s", path, error)
    chosen = os.environ.get(ISA_VARIABLE)  # an operator's own limit is tried, and no other
    decision = decide(run, (chosen,) if chosen else ISAS)
    if path is not None:
        _keep(path, decision)
    return decision


def _keep(path: Path, decision: CpuDecision) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            draft.write_text(json.dumps(asdict(decision)))
    except OSError as error:
        _log.info("the CPU decision is not kept: %s", error)


def apply(decision: CpuDecision) -> None:
    """Set the limit for this process; it counts from the next use of oneDNN on."""
    if decision.isa:
        os.environ[ISA_VARIABLE] = decision.isa
