"""systemd's end of the notification socket (sd_notify(3)): a real one, that keeps what it hears."""

from __future__ import annotations

import socket

#: A net for a hang; loading the engine takes seconds, on a busy machine many.
NET_S = 120.0


class Manager:
    """systemd's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(NET_S)

    def heard(self) -> list[dict[str, str]]:
        """Everything since the last question, oldest first; does not wait."""
        messages = []
        self._socket.setblocking(False)
        try:
            while True:
                messages.append(self._read())
        except BlockingIOError:
            return messages
        finally:
            self._socket.settimeout(NET_S)

    def hear(self, name: str) -> dict[str, str]:
        """Wait for a message that has this field."""
        while name not in (message := self._read()):
            pass
        return message

    def _read(self) -> dict[str, str]:
        fields: dict[str, str] = dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())
        return fields

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()
