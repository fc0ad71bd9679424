"""What an error of AWS means, whichever service it comes from.

Edge. Rules: an error is judged by its code without its namespace and by its HTTP status, never by its text.
Transient is what waiting may cure; expired or missing credentials are, once they are looked up again.
"""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    CredentialRetrievalError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

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
    return isinstance(error, BotoCoreError) and not isinstance(error, _NEVER)
