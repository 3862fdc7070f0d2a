"""Small tasks of every kind, and options that train them in a second."""

from dataclasses import replace

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from tuplet.datasets.task import Task
from tuplet.training import TrainOptions
from tuplet.training.runs import make_model

TINY = {"dim": 8, "depth": 1, "heads": 2, "degree": True}


def path(n, **fields):
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    return Data(edge_index=to_undirected(edges, num_nodes=n), num_nodes=n, **fields)


def cycle(n, **fields):
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    return Data(edge_index=to_undirected(edges, num_nodes=n), num_nodes=n, **fields)


def split(count, train=0.6, val=0.2):
    order = torch.randperm(count, generator=torch.Generator().manual_seed(7))
    first, second = round(train * count), round((train + val) * count)
    return {"train": order[:first], "val": order[first:second], "test": order[second:]}


def paths_and_cycles(largest=12, folds=1, repeats=1):
    """Is a graph a path or a cycle?"""
    graphs = [make(n, y=torch.tensor([y])) for n in range(3, largest) for y, make in enumerate((path, cycle))] * repeats
    parts = split(len(graphs))
    splits = tuple(
        {"train": parts["train"].roll(fold), **{k: v for k, v in parts.items() if k != "train"}}
        for fold in range(folds)
    )
    return Task("rings", graphs, splits, "graph", "classification", 2, "cross_entropy", "accuracy")


def sizes(count=24, standardise=True, missing=True):
    """Two real targets, some of them missing: the number of nodes, and of nodes of type 1; with node and edge types."""
    generator = torch.Generator().manual_seed(3)
    graphs = []
    for number in range(count):
        n = 3 + number % 6
        graph = (path if number % 2 else cycle)(n, x=torch.randint(2, (n, 1), generator=generator))
        graph.edge_attr = (graph.edge_index.sum(0) % 3)[:, None]
        graph.y = torch.tensor([[10.0 * n, float(graph.x.sum())]])
        if missing and number % 5 == 0:
            graph.y[0, number % 2] = torch.nan
        graphs.append(graph)
    moments = ((55.0, 2.5), (18.0, 1.5)) if standardise else (None, None)
    return Task(
        "sizes", graphs, (split(count),), "graph", "regression", 2, "l1", "mae",
        node_types=(2,), edge_types=(3,), mean=moments[0], std=moments[1], targets=("nodes", "ones"),
    )  # fmt: skip


def flags(count=36):
    """Two 0/1 targets, some missing: is the graph a cycle, is it large?"""
    graphs = []
    for number in range(count):
        n = 3 + number % 7
        graph = (path if number % 2 else cycle)(n, y=torch.tensor([[1.0 - number % 2, float(n > 5)]]))
        if number % 6 == 1:
            graph.y[0, 1] = torch.nan
        graphs.append(graph)
    return Task("flags", graphs, (split(count),), "graph", "binary", 2, "bce", "rocauc")


def one_sided(count=36):
    """Flags whose validation part has no 0: its ROC-AUC is undefined, its loss is not."""
    task = flags(count)
    for member in task.splits[0]["val"].tolist():
        task.graphs[member].y = torch.ones(1, 2)
    return task


def ends(folds=1):
    """Is a node an end of one of many paths? One graph, real features."""
    pieces = [path(2 + number % 4) for number in range(12)]
    start, edges, labels = 0, [], []
    for piece in pieces:
        edges.append(piece.edge_index + start)
        labels.append(torch.bincount(piece.edge_index[0], minlength=piece.num_nodes) == 1)
        start += piece.num_nodes
    y = torch.cat(labels).long()
    x = torch.randn(start, 3, generator=torch.Generator().manual_seed(1))
    graph = Data(x=x, edge_index=torch.cat(edges, 1), y=y, num_nodes=start)
    return Task(
        "ends", [graph], (split(start),) * folds, "node", "classification", 2, "cross_entropy", "accuracy", node_dim=3
    )


def links(count=16):
    """Is a pair of nodes of a cycle an edge?"""
    graphs = []
    for number in range(count):
        n = 4 + number % 5
        graph = cycle(n)
        pairs = torch.tensor([[0, 0, 1, 1], [1, 2, 2, 3]])
        graph.edge_label_index, graph.edge_label = pairs, torch.tensor([1.0, 0.0, 1.0, 0.0])[:, None]
        if n == 4:
            graph.edge_label_index, graph.edge_label = pairs[:, :3], graph.edge_label[:3]
        graphs.append(graph)
    return Task("links", graphs, (split(count),), "edge", "binary", 1, "bce", "accuracy")


TASKS = {"graph": paths_and_cycles, "regression": sizes, "binary": flags, "node": ends, "edge": links}


def options(**changes):
    usual = {
        "model": "A2^LN", "model_options": TINY, "epochs": 3, "batch_size": 4, "lr": 1e-2, "warmup": 1,
        "accelerator": "cpu", "tensorboard": False,
    }  # fmt: skip
    more = {**TINY, **changes.pop("model_options", {})}
    return TrainOptions(**{**usual, "model_options": more, **changes})


def tiny(task=None, **changes):
    torch.manual_seed(0)
    return make_model(task or paths_and_cycles(), options(model_options={"norm": "layer", **changes}))


def everywhere(task):
    """The task with the same graphs to learn from, to validate and to test."""
    whole = torch.arange(len(task.graphs))
    return replace(task, splits=({"train": whole, "val": whole, "test": whole},))
