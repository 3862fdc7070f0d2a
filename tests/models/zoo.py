"""Every kind of model, tuples of order 1 to 3 and simplices up to dimension 3, for the tests that all of them must pass."""

import tuplet

OPTIONS = {"dim": 12, "depth": 2, "heads": 3, "node_types": 3, "edge_types": 2}

PER_ORDER = (
    "A{k}",
    "A{k}+basis",
    "A{k}-Performer",
    "A{k}-Linear",
    "A{k}-ReLU",
    "A{k}^Ngbh",
    "A{k}^Ngbh+",
    "A{k}^LN",
    "A{k}^VT",
    "A{k}^LN+VT",
    "A{k}^Ngbh+VT",
    "A{k}^Ngbh++LN+VT",
    "A{k}-ReLU^LN",
    "A{k}(connected)",
    "A{k}(random:9)^Ngbh+",
    "A{k}(connected)^LN",
)
MIXED = (
    "A2-ReLU^Ngbh+",
    "A2-Performer^Ngbh+",
    "A2-Linear^LN",
    "A2-Performer^VT",
    "A2^Ngbh++scale",
    "A2^Ngbh++reweight",
    "A2^LN+scale",
    "A2+basis+reweight",
    "A3(random:9)+basis",
    "A1,1^Ngbh",
    "A1,2",
    "A1,2^Ngbh",
    "A1,2-Performer",
    "A2,1",
    "A2,1^Ngbh",
    "A1,3^Ngbh",
    "A2,3^Ngbh",
    "A3,2^Ngbh",
    "A1,2+basis",
    "A1,3(connected)^Ngbh",
    "A3,1(random:9)^Ngbh",
    "A2,2(connected)^Ngbh",
)
PER_DIMENSION = (
    "AS0:{K}",
    "AS0:{K}+bias",
    "AS0:{K}+scale",
    "AS0:{K}+reweight",
    "AS0:{K}-Performer",
    "AS0:{K}-Linear",
    "AS0:{K}-ReLU",
    "AS0:{K}^SN",
    "AS0:{K}^SN+bias",
    "AS0:{K}-ReLU^SN",
    "AS0:{K}^VS",
    "AS0:{K}^SN+VS",
)
MIXED_SIMPLICES = ("AS1", "AS2+bias", "AS1^SN+VS", "AS1:2", "AS1:2^SN", "AS0:1-Linear+bias", "AS0:1-Performer^SN+VS")
SIMPLICIAL = tuple(name.format(K=K) for K in (0, 1, 2, 3) for name in PER_DIMENSION) + MIXED_SIMPLICES
NAMES = tuple(name.format(k=k) for k in (1, 2, 3) for name in PER_ORDER) + MIXED + SIMPLICIAL
TASKS = ("graph", "node", "edge")


def build(name: str, task: str = "graph", **options):
    """A small model with random weights in float64, evaluation mode."""
    return tuplet.build(name, task=task, outputs=2, **{**OPTIONS, **options}).double().eval()
