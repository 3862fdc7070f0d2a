"""Train, be killed at a random moment, go on, many times; run as a program by ``test_resume``.

    python kill_runs.py FOLDER KILLS SEED

The process imports everything once and forks a child for each attempt. It prints, as JSON, how many attempts were killed
and the newest checkpoint after each.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import lightning_fabric  # noqa: F401  imported before the fork, so that an attempt begins at once
import matplotlib.figure  # noqa: F401
import torch
import torchmetrics.functional  # noqa: F401
from training_cases import options, sizes

from tuplet.training import train


def attempt(out):
    """One attempt in a child, which trains and leaves without any farewell."""
    child = os.fork()
    if child:
        return child
    try:
        train(sizes(), SETTING, out, resume=True, show=False)
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)


SETTING = options(
    epochs=5,
    seeds=(0, 1),
    batch_size=3,
    checkpoint_seconds=0,
    model="A2^LN+VT",
    model_options={"dropout": 0.3, "encodings": ["LapPE:3:4"], "pool": "add"},
)


def newest(out):
    """The newest checkpoint of all: of the last seed, the last number."""
    return max((str(path.relative_to(out)) for path in out.rglob("checkpoint-*.json")), default="")


def wait(chance, child, out, starting):
    """Until some checkpoints were written, and a little longer; sometimes only for a part of the time that a start takes."""
    if chance.random() < 0.2:
        time.sleep(chance.uniform(0, starting))
        return
    for _ in range(chance.randint(1, 4)):
        before = newest(out)
        while newest(out) == before:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.03))


def main(folder, kills, seed):
    torch.set_num_threads(1)
    chance = random.Random(seed)
    whole, killed_run = folder / "whole", folder / "killed"
    begin = time.monotonic()
    child = attempt(whole)
    while not newest(whole):
        time.sleep(0.0005)
    starting = time.monotonic() - begin
    assert os.waitpid(child, 0)[1] == 0
    killed, seen = 0, []
    for _ in range(kills):
        child = attempt(killed_run)
        wait(chance, child, killed_run, starting)
        os.kill(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        seen.append(newest(killed_run))
    code = os.waitstatus_to_exitcode(os.waitpid(attempt(killed_run), 0)[1])
    print(json.dumps({"killed": killed, "seen": seen, "code": code}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
