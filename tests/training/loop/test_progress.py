import dataclasses
import io
import json
from pathlib import Path

import pytest
import torch

from training.loop import runlog
from training.loop.meter import Meter
from training.loop.objective import Parts
from training.loop.progress import ProgressBar, Snapshot, clock_time, line, parts
from training.loop.runlog import RunLog


def snapshot(step: int = 50) -> Snapshot:
    return Snapshot(
        epoch=1,
        epochs=4,
        step=step,
        steps=200,
        images_per_second=123.4,
        seconds_left=3723,
        loss=2.5,
        cross_entropy=2.0,
        distillation=0.5,
        wait_share=0.07,
        accuracy={64: 0.5, 32: 0.25},
    )


def test_the_line_tells_rate_time_left_loss_parts_and_accuracy() -> None:
    assert line(snapshot()) == (
        " 25% epoch 2/4 123.4 img/s, 1:02:03 left, loss 2.500, 64:50% 32:25%, CE 2.000, KL 0.500, "
        "data wait 7%"
    )
    assert clock_time(59) == "0:59"


def test_a_loss_of_one_part_is_told_once() -> None:
    distilled = dataclasses.replace(snapshot(), cross_entropy=0.0)
    assert parts(distilled) == ["loss 2.500", "64:50% 32:25%", "data wait 7%"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_from_the_start_and_a_file_gets_few_lines() -> None:
    terminal, file = Terminal(), io.StringIO()
    now = 0.0
    bars = [
        ProgressBar(stream, clock=lambda: now, width=lambda: 120) for stream in (terminal, file)
    ]
    for bar in bars:
        bar.start(0, 6400)
    assert "  0% " in terminal.getvalue()
    assert file.getvalue() == ""
    for step in range(10):
        now += 10.0
        for bar in bars:
            bar.advance(32)
            bar.show(snapshot(step))
    for bar in bars:
        bar.say("done")
        bar.close()
    assert "done\n" in terminal.getvalue()
    assert "epoch 2/4" in terminal.getvalue()
    assert "left, loss 2.500, 64:50% 32:25%" in terminal.getvalue()
    assert file.getvalue().count("epoch") == 4  # one in half a minute
    ProgressBar(None).show(snapshot())


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_line_never_wraps_and_no_part_of_it_is_cut(width: int) -> None:
    terminal = Terminal()
    bar = ProgressBar(terminal, width=lambda: width)
    bar.start(3200, 6400)
    bar.show(snapshot())
    bar.close()
    shown = terminal.getvalue().rstrip("\n").split("\r")[-1]
    assert len(shown) <= width
    told = shown.partition(" left")[2].lstrip(", ").strip()
    assert ", ".join(parts(snapshot())).startswith(told)
    assert told == "" or told.split(", ")[-1] in parts(snapshot())


def test_a_full_disk_costs_events_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / runlog.FILE_NAME).symlink_to("/dev/full")
    log = RunLog(tmp_path)
    for step in (10, 20):
        log.write("step", step, loss=1.0)
    log.close()
    assert caplog.text.count("could not be written") == 1


def test_the_log_is_json_lines_and_can_be_cut_for_a_resume(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for step in (10, 20, 30):
        log.write("step", step, loss=1.0 / step)
    log.close()
    path = tmp_path / runlog.FILE_NAME
    with path.open("a") as file:
        file.write('{"kind": "step", "st')  # a crash in mid-line
    assert [event["step"] for event in runlog.read(path)] == [10, 20, 30]
    runlog.cut(path, 20)
    assert [json.loads(text)["step"] for text in path.read_text().splitlines()] == [10, 20]
    RunLog(None).write("step", 1)
    assert runlog.read(tmp_path / "none.jsonl") == []


def test_the_meter_averages_what_batches_cost() -> None:
    meter = Meter()
    for loss, hits in ((1.0, 3), (3.0, 1)):
        losses = {"cross_entropy/64": torch.tensor(loss), "distillation/32": torch.tensor(0.5)}
        meter.add(Parts(torch.tensor(loss + 0.5), losses, {64: torch.tensor(hits)}), images=4)
    averages = meter.flush()
    assert averages.loss == pytest.approx(2.5)
    assert averages.total("cross_entropy") == pytest.approx(2.0)
    assert averages.total("distillation") == pytest.approx(0.5)
    assert averages.accuracy == {64: 0.5}
