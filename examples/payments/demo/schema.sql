-- No constraint keeps a key from having two rows: what is shown here is that it has one.

CREATE TABLE IF NOT EXISTS payments (
	id         TEXT PRIMARY KEY,
	tenant     TEXT NOT NULL,
	under      TEXT NOT NULL,            -- the caller's idempotency key
	amount     BIGINT NOT NULL CHECK (amount > 0),
	currency   TEXT NOT NULL,
	account_id BIGINT NOT NULL,
	status     TEXT NOT NULL,
	charge     TEXT NOT NULL DEFAULT ''  -- the provider's name for it
);
CREATE INDEX IF NOT EXISTS payments_under ON payments (tenant, under);

CREATE TABLE IF NOT EXISTS transfers (
	id         TEXT PRIMARY KEY,
	tenant     TEXT NOT NULL,
	under      TEXT NOT NULL,
	amount     BIGINT NOT NULL CHECK (amount > 0),
	currency   TEXT NOT NULL,
	account_id BIGINT NOT NULL,
	status     TEXT NOT NULL,
	charge     TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS transfers_under ON transfers (tenant, under);

-- A charge is written down when the provider has told of it: to the request that made it, or to who asks later. So its
-- id is the provider's.
CREATE TABLE IF NOT EXISTS charges (
	id         TEXT PRIMARY KEY,
	tenant     TEXT NOT NULL,
	under      TEXT NOT NULL,
	amount     BIGINT NOT NULL CHECK (amount > 0),
	currency   TEXT NOT NULL,
	account_id BIGINT NOT NULL,
	status     TEXT NOT NULL,
	charge     TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS charges_under ON charges (tenant, under);
