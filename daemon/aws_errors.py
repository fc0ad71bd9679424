"""What an error of AWS means, whichever service it comes from.

Edge. Rules: an error is judged by its code without its namespace and by its HTTP status, never by its text.
Transient is what waiting may cure; expired or missing credentials are, once they are looked up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as ConnectionFailedError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

#: How the SDK fails without an answer: by its own errors, and by those that it lets through when a connection breaks in
#: the middle of an answer, or when what comes is no answer of AWS.
SDK_ERRORS: tuple[type[Exception], ...] = (BotoCoreError, HTTPError, ResponseParserError)
#: Those of them that a moment later may not be.
BROKEN_CONNECTIONS: tuple[type[Exception], ...] = (
    ConnectionFailedError,
    HTTPClientError,
    IncompleteReadError,
    CredentialRetrievalError,
    HTTPError,
    ResponseParserError,
)
#: How any call to AWS may fail.
CALL_ERRORS: tuple[type[Exception], ...] = (ClientError, *SDK_ERRORS)
#: The same where the call may be a client's first: `ValueError` is the SDK's for an endpoint that is no URL.
FIRST_CALL_ERRORS: tuple[type[Exception], ...] = (*CALL_ERRORS, ValueError)
_THROTTLED = frozenset({
    "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
    "TooManyRequestsException", "RequestLimitExceeded", "SlowDown", "KmsThrottled", "OverLimit", "RequestTimeout",
    "RequestTimeoutException", "ServiceUnavailable", "InternalError", "InternalFailure", "InternalServerError",
})  # fmt: skip
_CREDENTIALS = frozenset({
    "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException",
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthFailure", "InvalidSecurity", "MissingAuthenticationToken",
    "MissingAuthenticationTokenException", "InvalidToken",
})  # fmt: skip
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    SSOError,
)
#: Ours or the operator's: the call can never succeed as it is.
_NEVER = (ParamValidationError, NoRegionError, ProfileNotFound, ConfigParseError)


def insist_on_whole_answers(client: Any) -> None:
    """Let every call of `client` fail whose answer ends before its declared length, as `IncompleteReadError`.

    The SDK takes what came for the whole: half a JSON answer is to it an answer without anything in it, so that a
    record that is there would look absent.
    """
    client.meta.events.register("before-parse", _refuse_torn)


def _refuse_torn(response_dict: Mapping[str, Any], **_: object) -> None:
    body, headers = response_dict["body"], response_dict["headers"]
    declared = headers.get("content-length")
    encoded = headers.get("content-encoding", "identity") != "identity"
    if not isinstance(body, bytes) or declared is None or encoded or not body:
        return  # a stream checks itself, and what answers a HEAD has no body
    if len(body) < int(declared):
        raise IncompleteReadError(actual_bytes=len(body), expected_bytes=int(declared))


def code_of(error: ClientError) -> str:
    """The error's code without its namespace: `AWS.SimpleQueueService.NonExistentQueue` is `NonExistentQueue`."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return code.rpartition("#")[2].rpartition(".")[2]


def is_credentials(error: BaseException | None) -> bool:
    """Whether credentials were refused or could not be found: look them up again."""
    if isinstance(error, ClientError):
        return code_of(error) in _CREDENTIALS
    return isinstance(error, _NO_CREDENTIALS)


def is_transient(error: BaseException) -> bool:
    """Whether waiting may cure it."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        # 429 and 5xx, whatever the code: proxies and emulators send codes of their own.
        return code_of(error) in _THROTTLED | _CREDENTIALS or status == 429 or status >= 500  # noqa: PLR2004 - HTTP
    return isinstance(error, SDK_ERRORS) and not isinstance(error, _NEVER)
