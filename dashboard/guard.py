"""Admission of a request: by its token, and only from pages of the dashboard itself.

The token stays in the address of every link. A cookie would be sent to every other server on the
same host, whatever its port: to those of other users of a login node, too.
"""

import hmac
import re
import secrets

OWN_HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")
"""Names by which a browser reaches the dashboard, also through a tunnel with another port.

Any other name is a foreign one that was made to lead to the loopback interface (DNS rebinding).
"""

HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    # Charts set the styles of their elements; their icons are data.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
"""Headers of every answer."""


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def refusal(token: str, given: bytes, host: str, origin: str | None) -> str | None:
    """The reason to refuse a request, from its token and its headers; None if it is admitted."""
    if OWN_HOSTS.fullmatch(host) is None:
        return "the dashboard answers at 127.0.0.1 and localhost only; open the address that it printed"
    if origin is not None and origin != f"http://{host}":
        return "the request comes from a page of another origin"
    # In constant time, so that the time to a refusal shows nothing of the token.
    if not hmac.compare_digest(token.encode(), given):
        return "the token is missing or wrong; open the address that `aiperf dashboard` printed, with its token"
    return None
