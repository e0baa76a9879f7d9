"""`slipway.Endpoint` against a real gateway and replica: what goes in comes back in kind."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import slipway
from slipway import errors
from tests.workers.serving import KEY, Plane, key_route, plane

ROWS: list[list[float]] = [[1, 2, 3, 4], [0.5, 0, 0, 0]]
EXPECTED = [[20.0, 20.0], [1.0, 1.0]]


@pytest.fixture
def digits(served: Plane) -> Iterator[slipway.Endpoint]:
    """The endpoint, asked with its key at its gateway; no portal is there."""
    url = f"http://127.0.0.1:{served.port}/v1/digits"
    with slipway.Endpoint("digits", key=KEY, url=url) as endpoint:
        yield endpoint


@pytest.mark.thorough
def test_a_frame_comes_back_as_a_frame_with_its_index(digits: slipway.Endpoint) -> None:
    frame = pd.DataFrame(ROWS, columns=list("abcd"), index=["x", "y"])
    answer = digits.predict(frame)
    assert isinstance(answer, pd.DataFrame)
    assert answer.index.tolist() == ["x", "y"]
    assert answer.to_numpy().tolist() == EXPECTED


def test_an_array_comes_back_as_an_array(digits: slipway.Endpoint) -> None:
    answer = digits.predict(np.array(ROWS, np.float32))
    assert isinstance(answer, np.ndarray)
    assert answer.tolist() == EXPECTED


def test_records_rows_and_columns_come_back_as_lists(digits: slipway.Endpoint) -> None:
    records = [dict(zip("abcd", row, strict=True)) for row in ROWS]
    for given in (records, ROWS, {"x": ROWS}, {"x": np.array(ROWS)}, {"instances": ROWS}):
        assert digits.predict(given) == EXPECTED


def test_what_does_not_fit_is_named_by_column(digits: slipway.Endpoint) -> None:
    with pytest.raises(errors.InvalidInput, match="x") as refused:
        digits.predict([[1, 2, 3]])
    assert refused.value.status == 400
    assert [fault.field for fault in refused.value.errors] == ["x"]
    frame = pd.DataFrame({"a": [1.0, np.inf], "b": [1.0, np.nan]})
    with pytest.raises(errors.InvalidInput, match="not an infinity") as refused:
        digits.predict(frame)
    assert [fault.field for fault in refused.value.errors] == ["a[1]"]
    with pytest.raises(errors.InvalidInput, match="not object"):
        digits.predict({"x": [object()]})
    with pytest.raises(errors.InvalidInput, match="type int cannot be predicted on"):
        digits.predict(7)


def test_refusals_are_typed(served: Plane) -> None:
    gateway = f"http://127.0.0.1:{served.port}/v1"
    none = slipway.Retries(attempts=1)
    with (
        slipway.Endpoint("digits", key="slk_wrong", url=f"{gateway}/digits") as unknown,
        pytest.raises(errors.Unauthenticated),
    ):
        unknown.predict(ROWS)
    with (
        slipway.Endpoint("other", key=KEY, url=f"{gateway}/other") as missing,
        pytest.raises(errors.NotFound),
    ):
        missing.predict(ROWS)
    with (
        slipway.Endpoint("x", key=KEY, url="http://127.0.0.1:9/v1/x", retries=none) as away,
        pytest.raises(errors.ConnectionFailed, match="cannot be reached"),
    ):
        away.predict(ROWS)


@pytest.mark.thorough
def test_a_rate_limit_is_waited_out_as_it_asks() -> None:
    with plane() as served:
        replica = served.replica()
        served.start_gateway()
        slow = key_route(KEY, rate={"per_s": 1, "burst": 1})
        served.serve(replica)
        served.serve(replica, keys=[slow, key_route("slk_other", "key-2")])
        url = f"http://127.0.0.1:{served.port}/v1/digits"
        once = slipway.Retries(attempts=1)
        with slipway.Endpoint("digits", key=KEY, url=url, retries=once) as hasty:
            with pytest.raises(errors.RateLimited) as refused:
                _ = [hasty.predict(ROWS) for _ in range(10)]
            assert (refused.value.retry_after_s or 0) >= 1
        with slipway.Endpoint("digits", key=KEY, url=url) as patient:
            assert patient.predict(ROWS) == EXPECTED
