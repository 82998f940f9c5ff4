"""The frozen request, sent once on a connection of its own."""

from __future__ import annotations

from k3lib.measure.client import open_client
from k3lib.spec.request import FrozenRequest
from k3lib.spec.results import RequestResult
from k3lib.spec.vocabulary import Probe


def send_request(
    base_url: str,
    request: FrozenRequest,
    *,
    model: str,
    probe: Probe = Probe.FROZEN,
    api_key: str | None = None,
) -> RequestResult:
    """
    One request, once; for several, keep a client (`open_client`).

    Args:
        base_url: Address of the engine, with or without `/v1`.
        request: What to send.
        model: Name the server knows the model by.
        probe: Why it is sent.
        api_key: Sent as a bearer token, or None.

    Returns:
        The row. Its times hold the client's first-use cost of 30 to 250 ms, because nothing warmed it up.

    Raises:
        SpecError: The address is not one.
    """
    with open_client(base_url, api_key) as client:
        return client.send(request, model=model, probe=probe)
