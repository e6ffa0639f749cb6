"""Runs a cell in a kernel of a Jupyter server, as its page does: `python cell.py ADDRESS_FILE CODE`. Prints its output.

Called with the Python of Jupyter's environment, which has the websocket client.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import uuid
from typing import Any

import websocket


def connect(address: dict[str, Any]) -> socket.socket:
    line = socket.socket(socket.AF_UNIX if address["socket"] else socket.AF_INET)
    line.connect(address["socket"] or ("127.0.0.1", address["port"]))
    line.settimeout(60)
    return line


def asked(address: dict[str, Any], method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(address)
    connection.request(method, path, json.dumps(body), {"Authorization": f"token {address['token']}"})
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status < 300, (answer.status, data)
    return json.loads(data)


def main(file: str, code: str) -> None:
    with open(file) as stream:
        address = json.load(stream)
    kernel = asked(address, "POST", "/api/kernels", {"name": "python3"})["id"]
    header = [f"Authorization: token {address['token']}"]
    page = websocket.create_connection(
        f"ws://localhost/api/kernels/{kernel}/channels", socket=connect(address), header=header
    )
    message = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "username": "",
        "session": "s",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    page.send(
        json.dumps({"header": message, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"})
    )
    while True:
        answer = json.loads(page.recv())
        if answer["parent_header"].get("msg_id") != message["msg_id"]:
            continue
        if answer["msg_type"] == "stream":
            print(answer["content"]["text"], end="")
        if answer["msg_type"] == "error":
            sys.exit("\n".join(answer["content"]["traceback"]))
        if answer["msg_type"] == "execute_reply":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
