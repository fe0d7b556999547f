"""git for Windows' programs under wine: hands a call over to `git_relay`, which has the git of this machine."""

import json
import os
import socket
import struct
import sys
import threading

_SIZE = ">I"
_FRAME = ">BI"

relay = socket.create_connection(("127.0.0.1", int(os.environ["UWF_TEST_GIT_RELAY"])))
variables = {name: value for name, value in os.environ.items() if name.startswith(("GIT_", "LC_"))}
call = json.dumps({"argv": sys.argv[1:], "folder": os.getcwd(), "variables": variables}).encode()  # noqa: PTH109
relay.sendall(struct.pack(_SIZE, len(call)) + call)


def send_input() -> None:
    while data := os.read(0, 1 << 16):
        relay.sendall(struct.pack(_SIZE, len(data)) + data)
    relay.sendall(struct.pack(_SIZE, 0))


threading.Thread(target=send_input, daemon=True).start()
answers = relay.makefile("rb")
while frame := answers.read(5):
    stream, size = struct.unpack(_FRAME, frame)
    if stream == 3:
        os._exit(size)
    rest = answers.read(size)
    while rest:
        rest = rest[os.write(stream, rest) :]
os._exit(1)
