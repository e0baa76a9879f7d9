"""Choose how deep a tree of wines grows with Metaflow: the flow before it moved to Slipway."""

from metaflow import FlowSpec, Parameter, retry, step


class WineFlow(FlowSpec):
    test_share = Parameter("test_share", default=0.25)

    @step
    def start(self):
        self.depths = [1, 2, 4]
        self.next(self.train, foreach="depths")

    @retry(times=2)
    @step
    def train(self):
        from sklearn.datasets import load_wine
        from sklearn.model_selection import train_test_split
        from sklearn.tree import DecisionTreeClassifier

        self.depth = self.input
        features, kinds = load_wine(return_X_y=True)
        train_x, test_x, train_y, test_y = train_test_split(
            features, kinds, test_size=self.test_share, random_state=0
        )
        tree = DecisionTreeClassifier(max_depth=self.depth, random_state=0)
        tree.fit(train_x, train_y)
        self.accuracy = float(tree.score(test_x, test_y))
        self.next(self.choose)

    @step
    def choose(self, inputs):
        best = max(inputs, key=lambda branch: branch.accuracy)
        self.depth, self.accuracy = best.depth, best.accuracy
        self.next(self.end)

    @step
    def end(self):
        print(f"depth {self.depth}: accuracy {self.accuracy:.3f}")


if __name__ == "__main__":
    WineFlow()
