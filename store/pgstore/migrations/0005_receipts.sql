-- works from 2
--
-- Receipts of messages that were delivered, of workers that keep them: what is left of a
-- message when its row is deleted. The statement that deletes the message writes its
-- receipt. All times are microseconds since 1970 by the database's clock.
CREATE TABLE {receipts} (
    id           bigint NOT NULL PRIMARY KEY, -- of the message
    delivered    bigint NOT NULL,
    expires      bigint NOT NULL,
    key_id       uuid   NOT NULL, -- of the key that the message settled; zero: none
    topic        bytea  NOT NULL, -- this and the following: whatever bytes
    key          bytea  NOT NULL, -- that the receiver got
    scope        bytea  NOT NULL, -- this and the next: the key that the message settled
    settled      bytea  NOT NULL,
    provider_ref bytea  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- Receipts by when they are deleted.
CREATE INDEX retrysafe_receipts_expires ON {receipts} (expires);
-- Receipts by the receiver's own name for the effect, which may be of any length.
CREATE INDEX retrysafe_receipts_ref ON {receipts} USING hash (provider_ref) WHERE provider_ref <> '';
-- Receipts of the messages that settled a key.
CREATE INDEX retrysafe_receipts_key ON {receipts} (key_id) WHERE key_id <> '00000000-0000-0000-0000-000000000000';
