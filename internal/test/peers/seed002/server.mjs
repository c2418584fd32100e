// The TypeScript of "Idempotency Key API Boundaries", sections 2 and 3, without its types. What
// surrounds it, from "The server" on, is ours: the recipe ends where HTTP begins.
import { createHash } from "node:crypto";
import { createServer } from "node:http";

class InMemoryIdempotencyStore {
  #entries = new Map();
  reserve(key, fingerprint) {
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      this.#entries.set(key, { fingerprint, status: "inProgress" });
      return { kind: "execute" };
    }
    if (entry.fingerprint !== fingerprint) {
      return { kind: "keyMisuse" };
    }
    if (entry.status === "inProgress") {
      return { kind: "inProgress" };
    }
    return { kind: "replay", response: entry.response };
  }
  complete(key, response) {
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      throw new RangeError("This is an unreserved idempotency key.");
    }
    entry.status = "completed";
    entry.response = response;
  }
  fail(key) {
    const entry = this.#entries.get(key);
    if (entry !== undefined && entry.status === "inProgress") {
      this.#entries.delete(key);
    }
  }
}

function canonicalJson(value) {
  const sorted = Object.keys(value)
    .sort()
    .reduce((acc, k) => {
      acc[k] = value[k];
      return acc;
    }, {});
  return JSON.stringify(sorted);
}

function createPaymentFingerprint(request) {
  const canonical = canonicalJson({
    customerId: request.customerId,
    amountCents: request.amountCents,
    currency: request.currency,
  });
  return createHash("sha256").update(canonical, "utf8").digest("hex");
}

function validateCreatePaymentRequest(request) {
  if (request.idempotencyKey.trim().length < 16) {
    throw new RangeError("idempotencyKey is too short.");
  }
  if (request.customerId.trim().length === 0) {
    throw new RangeError("customerId cannot be empty.");
  }
  if (!Number.isInteger(request.amountCents) || request.amountCents <= 0) {
    throw new RangeError("amountCents must be an integer greater than or equal to 1.");
  }
}

function isDefinitelyNotExecuted(error) {
  void error;
  return false;
}

async function createPaymentApiAsync(request, store, gateway) {
  validateCreatePaymentRequest(request);
  const fingerprint = createPaymentFingerprint(request);
  let decision;
  try {
    decision = store.reserve(request.idempotencyKey, fingerprint);
  } catch {
    return { statusCode: 503, body: { code: "idempotency_store_unavailable" } };
  }
  if (decision.kind === "replay") {
    return decision.response;
  }
  if (decision.kind === "inProgress") {
    return { statusCode: 409, body: { code: "idempotency_key_in_progress" } };
  }
  if (decision.kind === "keyMisuse") {
    return { statusCode: 422, body: { code: "idempotency_key_reused_with_different_payload" } };
  }
  try {
    const payment = await gateway.createPaymentAsync(request);
    const response = {
      statusCode: 201,
      body: { paymentId: payment.paymentId, status: "created" },
    };
    store.complete(request.idempotencyKey, response);
    return response;
  } catch (gatewayError) {
    if (isDefinitelyNotExecuted(gatewayError)) {
      store.fail(request.idempotencyKey);
    }
    throw gatewayError; // Map to 5xx at the upper layer.
  }
}

// The server. The gateway is a payment provider at another address, which counts payments.
const [, , port, provider] = process.argv;
const store = new InMemoryIdempotencyStore();

class Failed extends Error {
  constructor(status) {
    super(`status ${status}`);
    this.status = status;
  }
}

function gatewayFor(test, req) {
  return {
    async createPaymentAsync(request) {
      if (test === "slow") await new Promise((done) => setTimeout(done, 500));
      if (test === "fail") throw new Failed(503);
      if (test === "limit") throw new Failed(429);
      const key = encodeURIComponent(request.idempotencyKey.replaceAll('"', ""));
      const answer = await fetch(`${provider}/sell?key=${key}`, { method: "POST" });
      const payment = await answer.json();
      if (test === "crash") {
        req.socket.destroy();
        throw new Failed(500);
      }
      return payment;
    },
  };
}

const server = createServer(async (req, res) => {
  const answer = (statusCode, body) => {
    res.writeHead(statusCode, { "Content-Type": "application/json" });
    res.end(JSON.stringify(body));
  };
  if (!["Bearer a", "Bearer b"].includes(req.headers.authorization)) return answer(401, { code: "unauthorized" });
  if (req.method !== "POST") return answer(405, { code: "method_not_allowed" });
  try {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const { customerId, amountCents, currency } = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    const request = { idempotencyKey: req.headers["idempotency-key"] ?? "", customerId, amountCents, currency };
    const response = await createPaymentApiAsync(request, store, gatewayFor(req.headers["x-test"], req));
    answer(response.statusCode, response.body);
  } catch (err) {
    if (res.writable && !req.socket.destroyed) {
      answer(err instanceof Failed ? err.status : err instanceof RangeError || err instanceof SyntaxError || err instanceof TypeError ? 400 : 500, { code: err.message });
    }
  }
});
server.listen(Number(port), "127.0.0.1", () => console.log("listening"));
