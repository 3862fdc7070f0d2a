"""The checks of every model on many more graphs than `make test` has time for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch
from zoo import NAMES, TASKS, build

from tuplet import testing

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(
    graphs=st.lists(testing.graphs(max_nodes=6, node_types=3, edge_types=2, queries=3), min_size=1, max_size=4),
    task=st.sampled_from(TASKS),
    softmax=st.sampled_from(["groups", "joint"]),
)
def test_symmetries_and_reference(name, graphs, task, softmax):
    model = build(name, task, softmax=softmax, dim=12, heads=4)  # SN has four groups of keys
    testing.assert_permutation_equivariant(model, graphs[0])
    testing.assert_batch_invariant(model, graphs)
    testing.assert_matches_reference(model, Batch.from_data_list(graphs))
