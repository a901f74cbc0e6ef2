-- The embedded store, schema version 1: what is kept of a purchase, and nothing else.
-- Never a body, a result, a query or document id, a raw credential, a signature, an IP address or a user agent.
-- Every length is bounded, so that a row is. Times are seconds since the epoch by the store's clock.

-- One row per (key, n); the columns are the fields of Attempt.
CREATE TABLE attempts (
    "key"               TEXT    NOT NULL CHECK (length("key") BETWEEN 16 AND 128), -- the caller's Idempotency-Key
    "n"                 INTEGER NOT NULL CHECK ("n" >= 1),             -- counts the attempts under the key, purged ones too
    "claim"             TEXT    NOT NULL UNIQUE CHECK (length("claim") <= 64), -- random; who holds it owns the row
    "state"             TEXT    NOT NULL
        CHECK ("state" IN ('reserved', 'settling', 'uncertain', 'settled', 'failed', 'released')),
    "lease"             REAL,                                          -- reserved, settling: until when the owner has it
    "protocol"          TEXT    NOT NULL CHECK (length("protocol") <= 32),
    "operation"         TEXT    NOT NULL CHECK (length("operation") <= 128),
    "release"           TEXT    NOT NULL CHECK (length("release") <= 64),
    "fingerprint"       TEXT    NOT NULL CHECK (length("fingerprint") = 64),       -- SHA-256 of what is bought
    "credential_digest" TEXT    NOT NULL CHECK (length("credential_digest") = 64), -- SHA-256 of the decoded credential
    "output_sha256"     TEXT    NOT NULL CHECK (length("output_sha256") = 64),     -- what every replay must recompute
    "amount"            INTEGER NOT NULL CHECK ("amount" >= 0),        -- base units of the asset
    "asset"             TEXT    NOT NULL CHECK (length("asset") <= 128),
    "network"           TEXT    NOT NULL CHECK (length("network") <= 64),
    "payer"             TEXT    CHECK (length("payer") <= 256),
    "payment_id"        TEXT    NOT NULL CHECK (length("payment_id") <= 512), -- x402: the nonce; MPP: the challenge id
    "valid_before"      INTEGER,                                       -- after it the credential moves no money any more
    "transaction"       TEXT    CHECK (length("transaction") <= 256),
    "reason"            TEXT    CHECK (length("reason") <= 500),       -- why failed, released or uncertain
    "receipt"           TEXT    CHECK (length("receipt") <= 131072),   -- the receipt header of every 200, byte for byte
    "created_at"        REAL    NOT NULL,
    "updated_at"        REAL    NOT NULL,
    "expires_at"        REAL,                                          -- settled, failed, released: end of the window
    PRIMARY KEY ("key", "n")
);

-- What the purge and the operator look for: ended attempts by the end of their window, open ones by state.
CREATE INDEX attempts_ended ON attempts ("expires_at") WHERE "expires_at" IS NOT NULL;
CREATE INDEX attempts_open ON attempts ("state", "lease") WHERE "expires_at" IS NULL;

-- What may be used once, ever. A proof outlives its attempt; only a reservation that came to nothing gives it back.
CREATE TABLE proofs (
    "proof"      BLOB    NOT NULL PRIMARY KEY CHECK (length("proof") = 32),
    "key"        TEXT    NOT NULL,
    "n"          INTEGER NOT NULL,
    "claim"      TEXT    NOT NULL,
    "last_state" TEXT    CHECK ("last_state" IN ('settled', 'failed', 'released')) -- set when the attempt is purged
) WITHOUT ROWID;

CREATE INDEX proofs_by_key ON proofs ("key");

-- Decisions that the table of moves left to somebody.
CREATE TABLE audit (
    "at"       REAL    NOT NULL,
    "key"      TEXT    NOT NULL,
    "n"        INTEGER NOT NULL,
    "who"      TEXT    NOT NULL CHECK (length("who") <= 256),
    "what"     TEXT    NOT NULL CHECK (length("what") <= 256),
    "evidence" TEXT    NOT NULL CHECK (length("evidence") <= 4096)
);

CREATE INDEX audit_by_key ON audit ("key");
