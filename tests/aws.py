"""An embedded AWS on loopback: moto's server over real HTTP.

Fixtures only; `tests/conftest.py` makes them known everywhere. Rules: one server per session on a port that
the kernel picks; credentials and region come from the fixture and never from the machine; a test starts with
empty buckets and queues. A test that asks for `moto_endpoint` bears the marker `aws`.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator

import pytest

REGION = "eu-central-1"


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """URL of the session's server, without a slash at its end; state is shared, so ask for `moto_endpoint`."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - 0.5 s that only the tests over HTTP pay

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that open nothing, and no trace of the machine's own AWS set-up."""
    for name in tuple(os.environ):
        if name.startswith("AWS_") or name.lower() in {"http_proxy", "https_proxy", "all_proxy"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture
def moto_endpoint(moto_server: str, aws_environment: None) -> str:
    """URL of an AWS in which nothing exists yet; use it as `endpoint_url`."""
    request = urllib.request.Request(f"{moto_server}/moto-api/reset", method="POST")  # noqa: S310 - our own loopback server
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30):
        return moto_server
