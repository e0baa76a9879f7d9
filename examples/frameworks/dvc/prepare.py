from sklearn.datasets import load_wine

load_wine(as_frame=True).frame.to_csv("wine.csv", index=False)
