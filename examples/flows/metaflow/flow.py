"""Choose how deep a tree of wines grows: a flow of Metaflow that moved to Slipway."""

from typing import NamedTuple

from slipway import pipeline, step


class Tree(NamedTuple):
    depth: int
    accuracy: float


@step(retries=2)
def train(depth: int, test_share: float) -> Tree:
    from sklearn.datasets import load_wine
    from sklearn.model_selection import train_test_split
    from sklearn.tree import DecisionTreeClassifier

    features, kinds = load_wine(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        features, kinds, test_size=test_share, random_state=0
    )
    tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
    tree.fit(train_x, train_y)
    return Tree(depth, float(tree.score(test_x, test_y)))


@step
def choose(depths: list[int], accuracies: list[float]) -> Tree:
    accuracy, depth = max(zip(accuracies, depths, strict=True))
    return Tree(depth, accuracy)


@step
def end(depth: int, accuracy: float) -> None:
    print(f"depth {depth}: accuracy {accuracy:.3f}")


@pipeline
def wine(test_share: float = 0.25, depths: list[int] = [1, 2, 4]):
    trees = train.map(depth=depths)(test_share=test_share)
    best = choose(trees.depth, trees.accuracy)
    end(best.depth, best.accuracy)
