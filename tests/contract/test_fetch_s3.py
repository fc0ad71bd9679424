"""Fetching from S3: moto over real HTTP, and a scripted server for what moto never says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from daemon.fetch import Fetcher
from daemon.model import Cause
from tests.contract.fetching import cause_of, content, fetcher
from tests.fakes.web import PDF, Answer, web


@pytest.mark.aws
class TestS3:
    """s3://, as moto speaks it over HTTP."""

    @pytest.fixture
    def s3(self, moto_endpoint: str) -> Any:
        """A plain client, and a bucket with versions."""
        s3 = boto3.session.Session().client("s3", endpoint_url=moto_endpoint)
        s3.create_bucket(Bucket="scans", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        s3.put_bucket_versioning(Bucket="scans", VersioningConfiguration={"Status": "Enabled"})
        return s3

    @pytest.fixture
    def source(self, tmp_path: Path, moto_endpoint: str) -> Fetcher:
        """Ours."""
        return fetcher(tmp_path, endpoint=moto_endpoint)

    @pytest.mark.parametrize("key", ["a.pdf", "in/a b+c%20d.pdf", "é/文書?x#y.pdf", "a//b.pdf", "a/../b/./c.pdf"])
    def test_a_key_is_used_as_it_is(self, s3: Any, source: Fetcher, key: str) -> None:
        """Decoded by intake once; never again."""
        s3.put_object(Bucket="scans", Key=key, Body=PDF)
        assert content(source, f"s3://scans/{key}") == PDF

    def test_the_version_that_was_named_is_fetched(self, s3: Any, source: Fetcher) -> None:
        """An object that was overwritten meanwhile does not change what a message meant."""
        old = s3.put_object(Bucket="scans", Key="a.pdf", Body=PDF)["VersionId"]
        s3.put_object(Bucket="scans", Key="a.pdf", Body=PDF + b"new")
        assert content(source, "s3://scans/a.pdf", old) == PDF
        assert content(source, "s3://scans/a.pdf") == PDF + b"new"

    def test_what_is_gone_is_permanent(self, s3: Any, source: Fetcher) -> None:
        """Key, version or bucket: another try on another host would end the same way."""
        version = s3.put_object(Bucket="scans", Key="a.pdf", Body=PDF)["VersionId"]
        s3.delete_object(Bucket="scans", Key="a.pdf", VersionId=version)
        s3.put_object(Bucket="scans", Key="b.pdf", Body=PDF)
        s3.delete_object(Bucket="scans", Key="b.pdf")
        for uri, named in (
            ("s3://scans/a.pdf", version),
            ("s3://scans/b.pdf", None),
            ("s3://scans/never.pdf", None),
            ("s3://no-such-bucket/a.pdf", None),
        ):
            assert cause_of(source, uri, named)[0] is Cause.SOURCE_MISSING

    def test_what_is_no_bucket_is_refused(self, source: Fetcher) -> None:
        """boto3 would not even ask."""
        assert cause_of(source, "s3://a b/x.pdf")[0] is Cause.SOURCE_REFUSED

    def test_size_and_type_are_checked(self, s3: Any, source: Fetcher) -> None:
        """Too large, empty, or something else by its content."""
        cases = ((b"x" * 100_001, Cause.TOO_LARGE), (b"", Cause.NOT_A_DOCUMENT), (b"PK\x03\x04", Cause.NOT_A_DOCUMENT))
        for body, cause in cases:
            s3.put_object(Bucket="scans", Key="a.pdf", Body=body)
            assert cause_of(source, "s3://scans/a.pdf")[0] is cause


def _error(status: int, code: str) -> Callable[[Answer], None]:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as scripted</Message></Error>".encode()
    return lambda answer: answer.whole(body, status, Content_Type="application/xml")


@pytest.mark.aws
@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [
        (403, "AccessDenied", Cause.SOURCE_UNAVAILABLE),
        (403, "InvalidObjectState", Cause.SOURCE_UNAVAILABLE),
        (400, "ExpiredToken", Cause.SOURCE_UNAVAILABLE),
        (501, "NotImplemented", Cause.SOURCE_UNAVAILABLE),
        (405, "MethodNotAllowed", Cause.SOURCE_MISSING),
        (400, "InvalidArgument", Cause.SOURCE_MISSING),
    ],
)
def test_an_error_of_s3_is_somebodys_problem(
    tmp_path: Path, aws_environment: None, status: int, code: str, cause: Cause
) -> None:
    """A role that changes is the world's; a version that is a delete marker, or no version, is the document's."""
    with web(_error(status, code)) as server:
        assert cause_of(fetcher(tmp_path, endpoint=server.url("")), "s3://scans/a.pdf", "v1")[0] is cause


@pytest.mark.aws
def test_credentials_of_s3_are_looked_up_again(
    tmp_path: Path, aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message was released; its next delivery finds the new credentials."""
    with web(_error(400, "ExpiredToken")) as server:
        source = fetcher(tmp_path, endpoint=server.url(""))
        cause_of(source, "s3://scans/a.pdf")
        server.answer = lambda answer: answer.whole(PDF)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "renewed")
        assert content(source, "s3://scans/a.pdf") == PDF
        assert "Credential=renewed/" in server.seen[-1].headers["Authorization"]


@pytest.mark.aws
def test_an_s3_that_drips_is_cut_by_the_deadline(tmp_path: Path, aws_environment: None) -> None:
    """Also where the SDK would wait for a full chunk."""

    def drip(answer: Answer) -> None:
        answer.head(200, Content_Length="5000")
        while not answer.server.over.wait(0.02):
            answer.wfile.write(b"%")
            answer.wfile.flush()

    with web(drip) as server:
        cause, detail = cause_of(fetcher(tmp_path, endpoint=server.url(""), timeout_s=0.5), "s3://scans/a.pdf")
    assert cause is Cause.SOURCE_UNAVAILABLE
    assert "fetch.timeout_s" in detail


@pytest.mark.aws
def test_an_object_that_breaks_off_is_the_worlds(tmp_path: Path, aws_environment: None) -> None:
    """Half an object must not become a broken document."""

    def short(answer: Answer) -> None:
        answer.head(200, Content_Length=str(len(PDF) + 10))
        answer.wfile.write(PDF)
        answer.close_connection = True

    with web(short) as server:
        cause, _ = cause_of(fetcher(tmp_path, endpoint=server.url("")), "s3://scans/a.pdf")
    assert cause is Cause.SOURCE_UNAVAILABLE
