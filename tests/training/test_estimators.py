"""The estimators in scikit-learn's own hands."""

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from training_cases import cycle, path

from tuplet.errors import InputError, OptionError
from tuplet.training import GraphClassifier, GraphRegressor

SMALL = {
    "dim": 16,
    "depth": 1,
    "heads": 2,
    "epochs": 25,
    "batch_size": 8,
    "lr": 2e-2,
    "model_options": {"degree": True},
}
GRAPHS = [make(n) for n in range(3, 9) for make in (path, cycle)] * 2
SIZES = np.array([graph.num_nodes for graph in GRAPHS], dtype=float)
SHAPES = np.array(["path", "ring"] * (len(GRAPHS) // 2))


def test_regressor_learns_and_scores_as_scikit_learn_does():
    model = GraphRegressor(**SMALL).fit(GRAPHS, 100 * SIZES)
    told = model.predict(GRAPHS)
    assert told.shape == (len(GRAPHS),)
    assert model.score(GRAPHS, 100 * SIZES) == pytest.approx(r2_score(100 * SIZES, told))
    assert model.score(GRAPHS, 100 * SIZES) > 0.5


def test_several_targets():
    targets = np.stack([SIZES, -SIZES], axis=1)
    model = GraphRegressor(**{**SMALL, "epochs": 2}).fit(GRAPHS, targets)
    assert model.predict(GRAPHS[:3]).shape == (3, 2)
    assert model.score(GRAPHS, targets) == pytest.approx(r2_score(targets, model.predict(GRAPHS)))


def test_classifier_learns_words():
    model = GraphClassifier(**SMALL, validation=0).fit(GRAPHS, SHAPES)
    told = model.predict(GRAPHS)
    assert set(told) <= {"path", "ring"}
    assert model.score(GRAPHS, SHAPES) == accuracy_score(SHAPES, told) > 0.9
    chances = model.predict_proba(GRAPHS)
    assert chances.shape == (len(GRAPHS), 2)
    assert (model.classes_[chances.argmax(1)] == told).all()


def test_cross_validation_and_grid_search():
    scores = cross_val_score(GraphRegressor(**{**SMALL, "epochs": 3}), GRAPHS, SIZES, cv=3)
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    scores = cross_val_score(GraphClassifier(**{**SMALL, "epochs": 2}), GRAPHS, SHAPES, cv=2)
    assert ((scores >= 0) & (scores <= 1)).all()
    search = GridSearchCV(GraphClassifier(**{**SMALL, "epochs": 1}), {"depth": [1, 2]}, cv=2).fit(GRAPHS, SHAPES)
    assert search.best_params_["depth"] in (1, 2)


def test_parameters_are_those_of_the_constructor():
    model = GraphRegressor("A1", dim=8)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(dim=32).dim == 32
    assert model.dim == 8
    assert repr(model) == "GraphRegressor(model='A1', dim=8)"
    assert is_regressor(model)
    assert is_classifier(GraphClassifier())
    with pytest.raises(OptionError, match="width: expected one of model, dim"):
        model.set_params(width=3)


def test_the_same_seed_gives_the_same_model():
    one, two = (GraphRegressor(**{**SMALL, "epochs": 2}, seed=3).fit(GRAPHS, SIZES).predict(GRAPHS) for _ in range(2))
    other = GraphRegressor(**{**SMALL, "epochs": 2}, seed=4).fit(GRAPHS, SIZES).predict(GRAPHS)
    assert (one == two).all()
    assert (one != other).any()


def test_molecules_as_smiles():
    pytest.importorskip("rdkit")
    smiles = ["C", "CC", "CCC", "CCCC", "CCCCC", "CCO", "CN", "O"] * 2
    model = GraphRegressor("A1^LN", **{**SMALL, "epochs": 2}).fit(smiles, [len(text) for text in smiles])
    assert model.predict(["CCCCCC", "c1ccccc1"]).shape == (2,)  # aromatic atoms were never seen
    with pytest.raises(
        InputError, match=r"X\[1\]: expected a graph that the model can read; came 'C\(': .* errors='nan'"
    ):
        model.predict(["CC", "C("])
    with pytest.raises(
        InputError, match=r"X\[2\]: expected a molecule; came 'C\(': it is not written as a SMILES is\.$"
    ):
        model.fit(["C", "CC", "C(", "CCC"], range(4))
    lenient = model.set_params(errors="nan")
    with pytest.warns(
        UserWarning, match=r"2 graph\(s\) that cannot be predicted have NaN: X\[1\]: 'C\('.*; X\[2\]: 'None'"
    ):
        told = lenient.predict(["CC", "C(", None])
    assert np.isnan(told).tolist() == [False, True, True]
    with pytest.warns(UserWarning, match="cannot be predicted"):
        assert np.isnan(lenient.score(["CC", "C("], [1, 2]))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: GraphRegressor(**SMALL).fit(GRAPHS, SIZES[:-1]), "y: expected 24 targets, one a graph; came 23"),
        (lambda: GraphClassifier(**SMALL).fit(GRAPHS, ["a"] * 24), "y: expected at least two classes; came 1"),
        (
            lambda: GraphRegressor(validation=1.0).fit(GRAPHS, SIZES),
            r"validation: expected a number in \[0, 1\); came 1.0",
        ),
        (lambda: GraphRegressor(strings="inchi").fit(GRAPHS, SIZES), "strings: expected 'smiles' or 'graph6'"),
        (
            lambda: GraphRegressor().fit([*GRAPHS[:-1], "C"], SIZES),
            r"X\[0\]: expected a molecule; came .*: text was expected",
        ),
        (
            lambda: GraphRegressor(**SMALL, errors="skip").fit(GRAPHS, SIZES).predict(GRAPHS),
            "errors: expected 'raise' or 'nan'",
        ),
        (
            lambda: GraphRegressor(**SMALL, validation=0, patience=3).fit(GRAPHS, SIZES),
            "patience: 3 needs a validation part",
        ),
        (lambda: GraphRegressor().predict(GRAPHS), "GraphRegressor: expected fit before predict"),
        (
            lambda: GraphRegressor(validation=None).fit(GRAPHS, SIZES),
            r"validation: expected a number in \[0, 1\); came None",
        ),
        (lambda: GraphRegressor().fit([], []), "X: expected at least one graph; came an empty list"),
        (lambda: GraphRegressor(seed=-1).fit(GRAPHS, SIZES), "seed: expected a whole number of at least 0; came -1"),
        (lambda: GraphClassifier().fit("CCO", [0, 1, 2]), "X: expected a list of graphs or SMILES; came str alone"),
        (lambda: GraphRegressor().fit(GRAPHS[0], [1.0]), "X: expected a list of graphs or SMILES; came Data alone"),
        (
            lambda: GraphRegressor(**SMALL).fit(GRAPHS, SIZES).predict("CCO"),
            "X: expected a list of graphs or SMILES; came str alone",
        ),
    ],
)
def test_misuse_is_told_in_words(make, words):
    with pytest.raises((InputError, OptionError), match=words):
        make()


def test_numbers_of_numpy_are_numbers():
    """Grids of scikit-learn are made of them."""
    plain = GraphRegressor(**{**SMALL, "dim": 8, "epochs": 2, "lr": 0.5, "seed": 3}).fit(GRAPHS, SIZES)
    numpy = {"dim": np.int64(8), "epochs": np.int32(2), "lr": np.float64(0.5), "seed": np.int64(3)}
    other = GraphRegressor(**{**SMALL, **numpy}, train_options={"compile": np.bool_(False)}).fit(GRAPHS, SIZES)
    assert (plain.predict(GRAPHS) == other.predict(GRAPHS)).all()


def test_a_graph_that_fails_in_prediction_is_named():
    graphs = [path(n, x=torch.zeros(n, 1, dtype=torch.long)) for n in range(3, 9)]
    model = GraphRegressor(**{**SMALL, "epochs": 1}).fit(graphs, range(6))
    with pytest.raises(InputError, match=r"X\[1\]: expected a graph that the model can read"):
        model.predict([graphs[0], path(4, x=torch.full((4, 1), 9))])


@pytest.mark.parametrize("classes", [["path", "ring"], [-1, 1], [False, True]])
def test_a_graph_that_fails_has_no_class(classes):
    graphs = [make(n, x=torch.zeros(n, 1, dtype=torch.long)) for n in range(3, 7) for make in (path, cycle)]
    model = GraphClassifier(**{**SMALL, "epochs": 1}, errors="nan").fit(graphs, classes * 4)
    assert model.classes_.tolist() == classes
    assert model.predict(graphs).dtype == model.classes_.dtype
    strange = path(4, x=torch.full((4, 1), 9))
    with pytest.warns(UserWarning, match=r"1 graph\(s\) that cannot be predicted have NaN: X\[1\]: "):
        told = model.predict([graphs[0], strange, graphs[1]])
    assert [label != label for label in told.tolist()] == [False, True, False]
    with pytest.warns(UserWarning, match="cannot be predicted"):
        assert np.isnan(model.predict_proba([strange])).all()
    with pytest.warns(UserWarning, match="cannot be predicted"):
        assert model.score([strange], classes[:1]) == 0


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_classes_are_masked(missing):
    labels = [missing if number % 3 == 0 else shape for number, shape in enumerate(SHAPES)]
    model = GraphClassifier(**SMALL, validation=0).fit(GRAPHS, labels)
    assert model.classes_.tolist() == ["path", "ring"]
    known = [number for number in range(len(GRAPHS)) if number % 3]
    told = model.predict(GRAPHS)
    assert model.score(GRAPHS, labels) == accuracy_score(SHAPES[known], told[known]) > 0.9


def test_missing_numbers_are_masked():
    blank = SIZES.copy()
    blank[::3] = np.nan
    model = GraphRegressor(**{**SMALL, "epochs": 2}).fit(GRAPHS, blank)
    there = ~np.isnan(blank)
    assert model.score(GRAPHS, blank) == pytest.approx(r2_score(blank[there], model.predict(GRAPHS)[there]))
    assert model.score(GRAPHS[:1], SIZES[:1]) == 0 == r2_score([3.0, 3.0], [1.0, 2.0])
