"""A crowd of one address: opens connections, keeps them, and asks on each of them again as soon as it has an answer.

    python flood.py PORT SOURCE CONNECTIONS [PATH]

Without a path nothing is sent. It says "open" once all were opened, and goes on until its standard input ends; then it
says how many connections are still open and how many answers came.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import sys


def main(port: int, source: str, number: int, path: str = "") -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, number + 100), hard))
    request = f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() if path else b""
    still_open, answers = 0, 0
    with selectors.DefaultSelector() as selector:

        def look(seconds: float) -> bool:
            """Read what came; return whether to go on."""
            nonlocal answers
            for key, _ in selector.select(seconds):
                if key.fileobj is sys.stdin:
                    return False
                assert isinstance(key.fileobj, socket.socket)
                try:
                    received = key.fileobj.recv(65_536)
                    if received and request:
                        answers += 1
                        key.fileobj.sendall(request)
                except OSError:
                    received = b""
                if not received:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
            return True

        os.set_blocking(sys.stdin.fileno(), False)
        selector.register(sys.stdin, selectors.EVENT_READ)
        for _ in range(number):
            connection = socket.socket()
            # One address has 28,000 ports, which connections that were closed hold for a minute.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.bind((source, 0))
            with contextlib.suppress(OSError):
                connection.connect(("127.0.0.1", port))
                selector.register(connection, selectors.EVENT_READ)
            look(0)
        for key in list(selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                with contextlib.suppress(OSError):
                    key.fileobj.sendall(request)
        print("open", flush=True)
        while look(1):
            pass
        still_open = len(selector.get_map()) - 1
    print(still_open, answers, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
