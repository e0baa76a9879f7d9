"""Write scikit-learn's 1,797 handwritten digits as a CSV file: 64 pixels from 0 to 16, and a label.

python make_csv.py digits.csv
slipway dataset push digits digits.csv
slipway train train.py --dataset digits --requirements requirements.txt
"""

import sys

import numpy as np
from sklearn.datasets import load_digits


def main(path: str) -> None:
    """Write the file."""
    images, labels = load_digits(return_X_y=True)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    np.savetxt(
        path,
        np.column_stack([images, labels]),
        fmt="%d",
        delimiter=",",
        header=",".join([*names, "label"]),
        comments="",
    )


if __name__ == "__main__":
    main(sys.argv[1])
