"""Captured predictions in tests: written as a gateway writes them, shipped by its own shipper."""

import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import orjson

from portal.core import clock
from portal.endpoints.models import Endpoint
from portal.monitoring.models import CapturedHour
from portal.monitoring.paths import flat_root, raw_root
from portal.monitoring.pipeline import process_all
from tests.personas import Api, json_of
from tests.portal.endpoints.serving import Lab
from workers.gateway.capture_log.format import entry, pack_block
from workers.gateway.shipper import ship
from workers.serving.wire import Contract

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_numbers = count()
KEY = "key_" + "A" * 26


def prediction_id(at: datetime) -> str:
    """Return a new id, as gateways make them."""
    unix_ms = int(at.timestamp() * 1000)
    stamp = "".join(_CROCKFORD[(unix_ms >> shift) & 31] for shift in range(45, -5, -5))
    return f"prd_{stamp}TESTTES{next(_numbers):09X}"


class Traffic:
    """The predictions of the endpoint digits of the project vision."""

    def __init__(self, lab: Lab, api: Api) -> None:
        self.api = api
        lab.serving()
        self.endpoint = Endpoint.objects.get(name="digits")
        self.endpoint_id, self.revision_id = lab.ids(1)
        self.random = np.random.default_rng(5)
        self.root = "projects/vision/endpoints/digits"

    def settings(self, **changes: Any) -> Any:
        """Change how it is watched."""
        response = self.api.call("PATCH", f"{self.root}/monitoring/settings", changes)
        assert response.status_code == 200, response.content
        return json_of(response)

    def capture(
        self,
        requests: Sequence[Any],
        responses: Sequence[Any],
        *,
        ago: timedelta = timedelta(minutes=5),
        revision_id: str = "",
        key: str = KEY,
        status: int = 200,
        flags: int = 0,
        contract: Contract = Contract.SCORING,
    ) -> list[str]:
        """Capture predictions of a few seconds; returns their ids."""
        begin = clock.now() - ago
        context = orjson.dumps(
            {
                "endpoint": self.endpoint_id,
                "revision": revision_id or self.revision_id,
                "model": "digits",
                "model_version": "1",
            }
        )
        ids, entries = [], []
        for at, (request, response) in enumerate(zip(requests, responses, strict=True)):
            predicted_at = begin + timedelta(milliseconds=at)
            ids.append(prediction_id(predicted_at))
            sent = request if isinstance(request, bytes) else orjson.dumps(request)
            entries.append(
                entry(
                    ids[-1].encode(),
                    key.encode(),
                    int(predicted_at.timestamp() * 1_000_000) * 1_000,
                    2_000,
                    sent,
                    orjson.dumps(response) if status == 200 else b"",
                    *(0, 0, contract, flags, status),
                )
            )
        folder = raw_root()
        folder.mkdir(parents=True, exist_ok=True)
        segment = folder / f"{next(_numbers):020d}.seg"
        segment.write_bytes(pack_block(context, entries))
        assert ship(segment, folder) == len(ids)
        return ids

    def normal(
        self, rows: int, *, shift: float = 0.0, ago: timedelta = timedelta(minutes=5)
    ) -> list[str]:
        """Capture predictions of five normal inputs, of which the third may be shifted."""
        inputs = self.random.normal(size=(rows, 5))
        inputs[:, 2] += shift
        scores = 1 / (1 + np.exp(-2 * inputs[:, 0]))
        requests = [
            {
                "dataframe_split": {"columns": ["a", "b", "c", "d", "e"], "data": [row.tolist()]},
                "client_request_id": f"order-{next(_numbers)}",
            }
            for row in inputs
        ]
        responses = [
            {"predictions": [[round(1 - score, 4), round(score, 4)]]} for score in scores.tolist()
        ]
        return self.capture(requests, responses, ago=ago)

    def forget(self) -> None:
        """Remove all that was captured."""
        CapturedHour.objects.filter(endpoint=self.endpoint).delete()
        for root in (raw_root(), Path(flat_root())):
            shutil.rmtree(root, ignore_errors=True)

    def look(self) -> None:
        """Let the control task run."""
        process_all()

    def shown(self, **query: Any) -> Any:
        """Show how it did."""
        return self.get("monitoring", **query)

    def get(self, path: str, **query: Any) -> Any:
        """Ask for something of the endpoint."""
        response = self.api.get(f"{self.root}/{path}?{urlencode(query)}")
        assert response.status_code == 200, response.content
        return json_of(response)

    def post(self, path: str, body: Any, *, status: int = 200) -> Any:
        """Post to the endpoint."""
        response = self.api.post(f"{self.root}/{path}", body)
        assert response.status_code == status, response.content
        return json_of(response)

    def feature(self, name: str, **query: Any) -> Any:
        """Show one input."""
        return next(
            feature for feature in self.shown(**query)["features"] if feature["name"] == name
        )
