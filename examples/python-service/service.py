"""A payment service that knows nothing of retries: each POST is a payment.

    python3 service.py [port]

The gateway before it makes it safe to retry; see docs/gateway.md.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

payments, lock = [], Lock()


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        payment = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            payment["id"] = len(payments) + 1
            payments.append(payment)
        self.answer(201, payment, Location=f"/payments/{payment['id']}")

    def do_GET(self):
        with lock:
            self.answer(200, payments)

    def answer(self, status, value, **headers):
        body = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    ThreadingHTTPServer(("", port), Service).serve_forever()
