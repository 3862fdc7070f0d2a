"""Whether time that grows faster than tokens is the algorithm's or the memory's: one large graph beside many small ones of as many tokens.

    python benchmarks/tokens.py [--models A2^LN A2^VT A2-Linear A2-Performer] [--n 512] [--parts 8]

Printed are nanoseconds a token of one attention, forward and backward: on one graph of n / parts nodes, on as many of them as make the
tokens of one graph of n nodes, and on that graph. An attention that is linear in tokens takes the same for all three, if memory is as near
for many tokens as for few; if only the last two agree, it is memory, and if only the first two do, it is the algorithm. The three are
measured in turn, and the quickest of each counts, since machines are shared.
"""

from __future__ import annotations

import argparse

import torch

from tuplet.cli.table import align
from tuplet.experiments.measure import seconds
from tuplet.experiments.scaling import attention_call

ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["A2^LN", "A2^VT", "A2-Linear", "A2-Performer"])
    parser.add_argument("--n", type=int, default=512, help="nodes of the large graph (%(default)s)")
    parser.add_argument("--parts", type=int, default=8, help="how many times smaller the small ones are (%(default)s)")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    small, rows = options.n // options.parts, []
    for name in options.models:
        order = int(name[1])
        sizes = [(small, 1), (small, options.parts**order), (options.n, 1)]
        calls = [attention_call(name, n, device, {"heads": 4}, graphs) for n, graphs in sizes]
        rounds = [[seconds(call, device) for call in calls] for _ in range(ROUNDS)]
        quickest = [min(times) for times in zip(*rounds, strict=True)]
        each = [1e9 * time / (n**order * graphs) for time, (n, graphs) in zip(quickest, sizes, strict=True)]
        rows.append([name, *(f"{time:.0f}" for time in each), f"{each[1] / each[0]:.2f}", f"{each[2] / each[1]:.2f}"])
    many = f"{options.parts}^k of {small}"
    header = ("model", f"one of {small} nodes", many, f"one of {options.n}", "many / one small", "large / many")
    print(f"ns a token, {device.type}, {torch.get_num_threads()} threads")
    print(align(header, rows, range(1, len(header))))


if __name__ == "__main__":
    main()
