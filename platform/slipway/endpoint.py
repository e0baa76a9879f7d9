"""Predictions from Python: `slipway.Endpoint("digits").predict(frame)`."""

import json
import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import httpx

from slipway.client import Client
from slipway.connection import USER_AGENT
from slipway.credentials import clean_token, clean_url, default_project
from slipway.errors import ConnectionFailed, InvalidInput, SlipwayError, UnexpectedAnswer, error_for
from slipway.prediction_bodies import body_of, convert_like_input
from slipway.retries import Retries, retry_after_s
from slipway.sanitize import visible
from slipway.schemas.monitoring import PREDICTION_PATTERN, LabelsOut
from slipway.schemas.problem import Problem

# Nothing was predicted, or the replica was lost: a retry is safe. A prediction that timed out is
# not retried, because that would only add load.
_ASKED_AGAIN = frozenset({429, 502, 503})
_LARGEST_PROBLEM = 1_000_000
_PREDICTION = re.compile(PREDICTION_PATTERN)


class Endpoint:
    """Client of an endpoint for predictions.

    `key` defaults to SLIPWAY_ENDPOINT_KEY. `url` is the endpoint's address at the gateway and is
    looked up in Slipway unless given, so with both only the gateway is needed. Without a key the
    portal forwards requests in your name, which is meant for tests, not for load.

    `timeout_s` bounds connecting and each wait for bytes. `retries` says how often a request is
    sent again that the gateway rejected (429, 503, by its Retry-After) or lost. It may be shared
    between threads. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        name: str,
        *,
        key: str | None = None,
        url: str | None = None,
        project: str | None = None,
        timeout_s: float = 60.0,
        retries: Retries | None = None,
        client: Client | None = None,
    ) -> None:
        self.name = name
        given = key or os.environ.get("SLIPWAY_ENDPOINT_KEY")
        self._key = clean_token(given) if given else None
        self._url = clean_url(url) if url else None
        self._project = project
        self._client, self._owns_client = client, client is None
        self._retries = retries or Retries()
        self._http = httpx.Client(
            timeout=timeout_s,
            follow_redirects=False,  # a redirect could carry the key elsewhere
            headers={"User-Agent": USER_AGENT, "Content-Type": "application/json"},
        )

    def __repr__(self) -> str:
        return f"<slipway.Endpoint {self.name}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that stay open between predictions."""
        self._http.close()
        if self._owns_client and self._client is not None:
            self._client.close()
            self._client = None

    @property
    def url(self) -> str:
        """URL of the endpoint."""
        if self._url is None:
            client = self._slipway()
            self._url = client.endpoints.get(self.name, project=self._project_slug(client)).url
        return self._url

    def label(self, reference: str, value: str | float | bool, *, row: int = 0) -> LabelsOut:
        """Label a prediction with its true value, now or weeks later. Repeating it is safe.

        `reference` is the id of the prediction, or your own, which you gave to `predict`. You have
        to be signed in, as the portal receives the label.
        """
        name = "prediction_id" if _PREDICTION.match(reference) else "own_id"
        return self.label_many([{name: reference, "row": row, "value": value}])

    def label_many(self, labels: Sequence[Mapping[str, Any]]) -> LabelsOut:
        """Label many predictions: mappings of `prediction_id` or `own_id`, `value`, `row`."""
        client = self._slipway()
        return client.endpoints.monitoring.label(
            self.name, labels, project=self._project_slug(client)
        )

    def predict(self, data: Any, *, own_id: str | None = None) -> Any:
        """Return the predictions for a data frame, an array, records, rows or columns.

        A frame comes back as a frame or series with the same index, an array as an array, anything
        else as lists and mappings. Raises InvalidInput, whose `errors` name each column and what
        was expected, RateLimited and Unavailable when waiting did not help, and ServerError when
        the model itself failed. Under `own_id`, such as an order number, the prediction
        can be found and labelled later.
        """
        body = body_of(data)
        if own_id is not None:
            body["client_request_id"] = own_id
        content = self._through_the_portal(body) if self._key is None else self._post(body)
        if not isinstance(content, dict) or "predictions" not in content:
            raise UnexpectedAnswer(
                f"The answer of {self.name} holds no predictions.",
                next_step="Check that the address is that of an endpoint of Slipway.",
            )
        return convert_like_input(data, content["predictions"])

    def _post(self, body: dict[str, Any]) -> Any:
        request = self._http.build_request(
            "POST",
            f"{self.url}/invocations",
            content=json.dumps(body, allow_nan=False, separators=(",", ":")),
            headers={"Authorization": f"Bearer {self._key}"},
        )
        attempt = 0
        while True:
            attempt += 1
            asked_s: int | None = None
            try:
                answer = self._http.send(request)
            except httpx.RequestError as error:
                failure = self._connection_error(error)
                again = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            else:
                if answer.is_success:
                    return self._content(answer)
                asked_s = retry_after_s(answer.headers)
                failure = _refusal(answer.status_code, answer.content, answer.headers, asked_s)
                again = answer.status_code in _ASKED_AGAIN
            wait = self._retries.wait_s(attempt, asked_s=asked_s, jitter=random.random())  # noqa: S311
            if not again or wait is None:
                raise failure from None
            time.sleep(wait)

    def _content(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise UnexpectedAnswer(
                f"The answer of {self.url} is not JSON.",
                status=answer.status_code,
                next_step="Check that the address is that of an endpoint of Slipway.",
            ) from None

    def _connection_error(self, error: httpx.RequestError) -> SlipwayError:
        reason = (
            "it did not answer in time"
            if isinstance(error, httpx.TimeoutException)
            else f"it cannot be reached ({visible(str(error))})"
        )
        return ConnectionFailed(
            f"No answer from {self.url}: {reason}.",
            next_step="Check the address and the network, and that a gateway runs.",
        )

    def _through_the_portal(self, body: dict[str, Any]) -> Any:
        client = self._slipway()
        attempt = 0
        while True:
            attempt += 1
            value = client.endpoints.try_out(self.name, body, project=self._project_slug(client))
            if value.status < 300:
                return value.answer
            data = json.dumps(value.answer).encode()
            wait = self._retries.wait_s(attempt, asked_s=None, jitter=random.random())  # noqa: S311
            if value.status not in _ASKED_AGAIN or wait is None:
                raise _refusal(value.status, data, {}, None)
            time.sleep(wait)

    def _slipway(self) -> Client:
        if self._client is None:
            self._client = Client()
        return self._client

    def _project_slug(self, client: Client) -> str:
        slug = self._project or default_project(client.url)
        if slug is None:
            raise InvalidInput(
                "No project is named and none is in use.",
                field="project",
                next_step='Pass project="…", or the `url` and `key` of the endpoint.',
            )
        return slug


def _refusal(status: int, content: bytes, headers: Any, asked_s: int | None) -> SlipwayError:
    """Return the typed error of an answer that is no success."""
    problem: Problem | None = None
    if len(content) <= _LARGEST_PROBLEM:
        with suppress(ValueError):
            problem = _problem_of(status, json.loads(content))
    request_id = headers.get("x-request-id") or headers.get("x-slipway-prediction-id") or ""
    return error_for(status, problem, request_id=request_id, retry_after_s=asked_s)


def _problem_of(status: int, value: Any) -> Problem | None:
    """Parse the body of an error. Defaults complete a body that has only a detail."""
    if not isinstance(value, dict) or not isinstance(value.get("detail"), str):
        return None
    return Problem.model_validate(
        {"type": "about:blank", "title": "", "status": status, "code": "not_predicted"} | value
    )
