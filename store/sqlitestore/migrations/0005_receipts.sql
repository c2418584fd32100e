-- works from 2
--
-- Receipts of messages that were delivered, of workers that keep them: what is left of a
-- message when its row is deleted. The transaction that deletes the message writes its
-- receipt. All times are microseconds since 1970, by the machine's clock.
CREATE TABLE retrysafe_receipts (
    id           INTEGER PRIMARY KEY, -- of the message
    delivered    INTEGER NOT NULL,
    expires      INTEGER NOT NULL,
    key_id       BLOB    NOT NULL, -- of the key that the message settled; empty: none
    topic        TEXT    NOT NULL,
    key          TEXT    NOT NULL, -- that the receiver got
    scope        TEXT    NOT NULL, -- this and the next: the key that the message settled
    settled      TEXT    NOT NULL,
    provider_ref TEXT    NOT NULL
);
-- Receipts by when they are deleted.
CREATE INDEX retrysafe_receipts_expires ON retrysafe_receipts (expires);
-- Receipts by the receiver's own name for the effect.
CREATE INDEX retrysafe_receipts_ref ON retrysafe_receipts (provider_ref) WHERE provider_ref <> '';
-- Receipts of the messages that settled a key.
CREATE INDEX retrysafe_receipts_key ON retrysafe_receipts (key_id) WHERE key_id <> x'';
